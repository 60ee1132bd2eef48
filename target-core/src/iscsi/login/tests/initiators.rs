//! Login requests in the shape of well-known initiators: scripted from their documented behaviour, not captured.

use super::*;
use LoginStage::{FullFeature, Operational, Security};

const MICROSOFT: &str = "iqn.1991-05.com.microsoft:host.example.org";
const VMWARE: &str = "iqn.1998-01.com.vmware:esx-1-4f2a";

#[test]
fn open_iscsi_shaped() {
    let mut script = Script::new(directory(target()));
    let pairs = [
        ("InitiatorName", INITIATOR),
        ("InitiatorAlias", "host"),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
        ("IFMarker", "No"),
        ("OFMarker", "No"),
        ("ErrorRecoveryLevel", "0"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("MaxConnections", "1"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("MaxRecvDataSegmentLength", "262144"),
    ];
    let (admission, answer) = script.go(Operational, FullFeature, &pairs).admitted();
    assert!(said(&answer).contains(&"FirstBurstLength=262144".to_owned()));
    assert_eq!(admission.params.max_send_data_segment_len, 262_144);
    assert_eq!(admission.params.max_outstanding_r2t, 1);
}

#[test]
fn libiscsi_and_qemu_shaped() {
    // It offers both methods, wants to leave at once, and repeats its name in the second stage.
    let mut script = Script::new(directory(target()));
    let pairs = [
        ("InitiatorName", "iqn.2008-11.org.linux-kvm:build_host"),
        ("InitiatorAlias", "qemu"),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("AuthMethod", "CHAP,None"),
    ];
    let answer = script.go(Security, Operational, &pairs).answered();
    assert!(answer.transit);
    let pairs = [
        ("InitiatorName", "iqn.2008-11.org.linux-kvm:build_host"),
        ("HeaderDigest", "None,CRC32C"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "262144"),
        ("FirstBurstLength", "262144"),
        ("MaxRecvDataSegmentLength", "262144"),
        ("DataPDUInOrder", "Yes"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
        ("IFMarker", "No"),
        ("OFMarker", "No"),
        ("MaxConnections", "1"),
        ("MaxOutstandingR2T", "1"),
        ("ErrorRecoveryLevel", "0"),
        ("DataSequenceInOrder", "Yes"),
    ];
    let (admission, _) = script.go(Operational, FullFeature, &pairs).admitted();
    assert!(!admission.params.header_digest);
}

#[test]
fn windows_shaped() {
    let mut script = Script::new(directory(target()));
    let pairs = [
        ("InitiatorName", MICROSOFT),
        ("SessionType", "Normal"),
        ("TargetName", TARGET),
        ("AuthMethod", "None"),
    ];
    script.go(Security, Operational, &pairs).answered();
    let pairs = [
        ("HeaderDigest", "None,CRC32C"),
        ("DataDigest", "None,CRC32C"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("MaxConnections", "8"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("FirstBurstLength", "65536"),
        ("MaxBurstLength", "262144"),
        ("MaxOutstandingR2T", "16"),
        ("DefaultTime2Wait", "0"),
        ("DefaultTime2Retain", "60"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("ErrorRecoveryLevel", "2"),
    ];
    let (admission, answer) = script.go(Operational, FullFeature, &pairs).admitted();
    assert!(said(&answer).contains(&"ErrorRecoveryLevel=0".to_owned()));
    assert!(said(&answer).contains(&"MaxConnections=1".to_owned()));
    assert_eq!(admission.params.max_send_data_segment_len, 65_536);
}

#[test]
fn esxi_shaped() {
    let mut target = target();
    target.chap = chap_policy();
    let mut script = Script::new(directory(target));
    let pairs = [
        ("InitiatorName", VMWARE),
        ("InitiatorAlias", "esx-1"),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("AuthMethod", "CHAP"),
    ];
    assert!(!script.go(Security, Operational, &pairs).answered().transit);
    script.stay(Security, &[("CHAP_A", "5")]).answered();
    let proof = Algorithm::Md5.response(0x5a, &Secret::new(SECRET.to_vec()), &[0x5a; 16]);
    let pairs = [("CHAP_N", "alice"), ("CHAP_R", &format_hex(&proof))];
    assert!(script.go(Security, Operational, &pairs).answered().transit);
    let pairs = [
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("MaxRecvDataSegmentLength", "131072"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("FirstBurstLength", "262144"),
        ("MaxBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("ErrorRecoveryLevel", "0"),
    ];
    let (admission, _) = script.go(Operational, FullFeature, &pairs).admitted();
    assert_eq!(admission.authenticated_as.as_deref(), Some("alice"));
}

#[test]
fn ipxe_shaped() {
    let mut script = Script::new(directory(target()));
    let pairs = [
        (
            "InitiatorName",
            "iqn.2010-04.org.ipxe:c0ffee00-0000-4000-8000-000000000001",
        ),
        ("TargetName", TARGET),
        ("SessionType", "Normal"),
        ("AuthMethod", "CHAP,None"),
    ];
    assert!(script.go(Security, Operational, &pairs).answered().transit);
    let pairs = [
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("MaxConnections", "1"),
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("MaxRecvDataSegmentLength", "8192"),
        ("MaxBurstLength", "262144"),
        ("DefaultTime2Wait", "0"),
        ("DefaultTime2Retain", "0"),
        ("MaxOutstandingR2T", "1"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("ErrorRecoveryLevel", "0"),
    ];
    let (admission, _) = script.go(Operational, FullFeature, &pairs).admitted();
    assert!(admission.params.initial_r2t && !admission.params.immediate_data);
}
