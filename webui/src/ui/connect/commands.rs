//! What is typed on a host: commands for Linux, Windows, ESXi and QEMU, quoted as each of them needs it. Secrets are not in
//! them: they are never shown, and stand as a word to replace.

use std::net::SocketAddr;

/// Commands for one kind of host.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    /// For the page.
    pub(crate) id: &'static str,
    /// Whose.
    pub(crate) label: &'static str,
    /// To paste.
    pub(crate) text: String,
}

/// What the commands are made from.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    pub(super) target: String,
    pub(super) portal: String,
    pub(super) lun: u16,
    pub(super) naa: String,
    /// CHAP name to log in with.
    pub(super) chap: Option<String>,
    /// The target proves itself as well, by this CHAP name.
    pub(super) mutual: Option<String>,
    /// An initiator that is let in by name.
    pub(super) initiator: Option<String>,
    /// Discovery asks for CHAP, so that the target is written down rather than discovered.
    pub(super) discovery_chap: bool,
    /// Discovery tells other addresses than the portals' own, so that the record of a target has another than `portal`.
    pub(super) told_otherwise: bool,
}

impl Way {
    /// To log in and find the disk.
    pub(super) fn first(&self) -> Vec<Commands> {
        let commands = |id, label, text| Commands { id, label, text };
        vec![
            commands("linux", "Linux (open-iscsi, as root)", self.linux()),
            commands("windows", "Windows (PowerShell as administrator)", self.windows()),
            commands("esxi", "VMware ESXi (shell)", self.esxi()),
            commands("qemu", "QEMU", self.qemu()),
        ]
    }

    /// Hosts are told that a disk has grown; these go and look.
    pub(super) fn grown(&self) -> Vec<Commands> {
        let commands = |id, label, text| Commands { id, label, text };
        let linux = format!("{} --rescan\nresize2fs {}", self.node(), self.device());
        let windows = "Update-HostStorageCache\n\
             Get-Disk | Where-Object BusType -eq 'iSCSI' | Get-Partition | Where-Object DriveLetter | ForEach-Object {\n    \
             Resize-Partition -DriveLetter $_.DriveLetter -Size ($_ | Get-PartitionSupportedSize).SizeMax }";
        let esxi = "esxcli storage core adapter rescan --all";
        vec![
            commands("linux-grown", "Linux (as root)", linux),
            commands(
                "windows-grown",
                "Windows (PowerShell as administrator)",
                windows.to_owned(),
            ),
            commands("esxi-grown", "VMware ESXi (shell)", esxi.to_owned()),
        ]
    }

    /// The name that udev gives the disk.
    pub(super) fn device(&self) -> String {
        format!("/dev/disk/by-id/wwn-0x{}", self.naa)
    }

    /// `iscsiadm` for the record of this target at this portal: a target may be found at several.
    fn node(&self) -> String {
        // Records are kept by the addresses that discovery told.
        let is_told = !self.told_otherwise && self.portal.parse::<SocketAddr>().is_ok();
        if !is_told && !self.discovery_chap {
            format!("iscsiadm -m node -T {}", self.target)
        } else {
            format!("iscsiadm -m node -T {} -p {}", self.target, self.portal)
        }
    }

    fn linux(&self) -> String {
        let node = self.node();
        let mut lines = vec![if self.discovery_chap {
            format!("{node} -o new")
        } else {
            format!("iscsiadm -m discovery -t sendtargets -p {}", self.portal)
        }];
        if let Some(name) = &self.chap {
            let set =
                |key: &str, value: &str| format!("{node} -o update -n node.session.auth.{key} -v {value}");
            lines.push(format!("SECRET='{BLANK}'"));
            lines.push(set("authmethod", "CHAP"));
            lines.push(set("username", &shell(name)));
            lines.push(set("password", "\"$SECRET\""));
            if let Some(name) = &self.mutual {
                lines.push(format!("SECRET_IN='{BLANK_MUTUAL}'"));
                lines.push(set("username_in", &shell(name)));
                lines.push(set("password_in", "\"$SECRET_IN\""));
            }
        }
        lines.push(format!("{node} -o update -n node.startup -v automatic"));
        lines.push(format!("{node} --login"));
        lines.push("udevadm settle".to_owned());
        lines.push(format!("lsblk {}", self.device()));
        lines.join("\n")
    }

    fn windows(&self) -> String {
        let (address, port) = self.address_and_port();
        let mut connect = format!(
            "Connect-IscsiTarget -NodeAddress '{}' -IsPersistent $true",
            self.target
        );
        let mut lines = vec!["Set-Service MSiSCSI -StartupType Automatic; Start-Service MSiSCSI".to_owned()];
        if let Some(name) = &self.chap {
            lines.push(format!("$secret = '{BLANK}'"));
            let kind = if self.mutual.is_some() {
                "MUTUALCHAP"
            } else {
                "ONEWAYCHAP"
            };
            connect.push_str(&format!(
                " -AuthenticationType {kind} -ChapUsername {} -ChapSecret $secret",
                powershell(name)
            ));
            if self.mutual.is_some() {
                lines.push(format!("Set-IscsiChapSecret -ChapSecret '{BLANK_MUTUAL}'"));
            }
        }
        lines.push(format!(
            "New-IscsiTargetPortal -TargetPortalAddress '{address}' -TargetPortalPortNumber {port}"
        ));
        lines.push(connect);
        lines.push("Get-Disk | Where-Object BusType -eq 'iSCSI'".to_owned());
        lines.join("\n")
    }

    fn esxi(&self) -> String {
        let mut lines = vec![
            "esxcli iscsi software set --enabled=true".to_owned(),
            "ADAPTER=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ {print $1}')".to_owned(),
            format!(
                "esxcli iscsi adapter discovery sendtarget add --adapter=$ADAPTER --address={}",
                self.portal
            ),
            "esxcli iscsi adapter discovery rediscover --adapter=$ADAPTER".to_owned(),
        ];
        let proof = |direction: &str, name: &str, secret: &str| {
            format!(
                "esxcli iscsi adapter target portal auth chap set --adapter=$ADAPTER --name={} --address={} \
                 --direction={direction} --level=required --authname={} --secret=\"{secret}\"",
                self.target,
                self.portal,
                shell(name)
            )
        };
        if let Some(name) = &self.chap {
            lines.push(format!("SECRET='{BLANK}'"));
            lines.push(proof("uni", name, "$SECRET"));
            if let Some(name) = &self.mutual {
                lines.push(format!("SECRET_IN='{BLANK_MUTUAL}'"));
                lines.push(proof("mutual", name, "$SECRET_IN"));
            }
        }
        lines.push("esxcli storage core adapter rescan --adapter=$ADAPTER".to_owned());
        lines.push(format!(
            "esxcli storage core device list --device=naa.{}",
            self.naa
        ));
        lines.join("\n")
    }

    fn qemu(&self) -> String {
        let option = |text: &str| shell_inside(&text.replace(',', ",,"));
        let mut disk = format!(
            "driver=iscsi,node-name=disk0,transport=tcp,portal={},target={},lun={}",
            self.portal, self.target, self.lun
        );
        if let Some(name) = &self.initiator {
            disk.push_str(&format!(",initiator-name={name}"));
        }
        let mut lines = Vec::new();
        let mut secret = "";
        if let Some(name) = &self.chap {
            disk.push_str(&format!(",user={},password-secret=chap0", option(name)));
            lines.push(format!("(umask 077 && printf %s '{BLANK}' > chap-secret)"));
            secret = "  -object secret,id=chap0,file=chap-secret \\\n";
        }
        lines.push(format!(
            "qemu-system-x86_64 -machine q35 -m 2048 \\\n{secret}  -blockdev '{disk}' \\\n  -device virtio-blk-pci,drive=disk0"
        ));
        lines.join("\n")
    }

    /// Apart, the address without brackets.
    fn address_and_port(&self) -> (&str, &str) {
        let (address, port) = self.portal.rsplit_once(':').unwrap_or((&self.portal, "3260"));
        (address.trim_start_matches('[').trim_end_matches(']'), port)
    }
}

/// A word of a POSIX shell.
fn shell(text: &str) -> String {
    format!("'{}'", shell_inside(text))
}

/// The same for what stands between single quotes already.
fn shell_inside(text: &str) -> String {
    text.replace('\'', "'\\''")
}

fn powershell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

const BLANK: &str = "put-the-secret-here";
const BLANK_MUTUAL: &str = "put-the-secret-of-the-target-here";

#[cfg(test)]
mod tests {
    use super::*;

    fn way() -> Way {
        Way {
            target: "iqn.2026-11.org.example:a".to_owned(),
            portal: "[2001:db8::1]:3260".to_owned(),
            lun: 3,
            naa: "3a1b2c3d4e5f6071".to_owned(),
            ..Way::default()
        }
    }

    #[test]
    fn linux_gets_the_portal_with_its_brackets_and_the_disk_by_its_name() {
        assert_eq!(
            way().linux(),
            "iscsiadm -m discovery -t sendtargets -p [2001:db8::1]:3260\n\
             iscsiadm -m node -T iqn.2026-11.org.example:a -p [2001:db8::1]:3260 \
             -o update -n node.startup -v automatic\n\
             iscsiadm -m node -T iqn.2026-11.org.example:a -p [2001:db8::1]:3260 --login\n\
             udevadm settle\n\
             lsblk /dev/disk/by-id/wwn-0x3a1b2c3d4e5f6071"
        );
    }

    #[test]
    fn windows_gets_the_address_without_brackets() {
        assert!(
            way()
                .windows()
                .contains("-TargetPortalAddress '2001:db8::1' -TargetPortalPortNumber 3260")
        );
    }

    #[test]
    fn a_chap_name_is_quoted_as_each_shell_needs_it() {
        let way = Way {
            chap: Some("o'neil, x".to_owned()),
            ..way()
        };
        assert!(way.linux().contains("auth.username -v 'o'\\''neil, x'\n"));
        assert!(
            way.windows()
                .contains("-ChapUsername 'o''neil, x' -ChapSecret $secret")
        );
        assert!(
            way.esxi()
                .contains("--authname='o'\\''neil, x' --secret=\"$SECRET\"")
        );
        assert!(way.qemu().contains(",user=o'\\''neil,, x,password-secret=chap0"));
    }

    #[test]
    fn where_discovery_asks_for_chap_the_target_is_written_down() {
        let way = Way {
            discovery_chap: true,
            ..way()
        };
        let first = "iscsiadm -m node -T iqn.2026-11.org.example:a -p [2001:db8::1]:3260 -o new\n";
        assert!(way.linux().starts_with(first));
    }

    #[test]
    fn where_discovery_tells_another_address_the_record_is_found_by_its_target() {
        let way = Way {
            told_otherwise: true,
            ..way()
        };
        assert!(
            way.linux()
                .contains("\niscsiadm -m node -T iqn.2026-11.org.example:a --login\n")
        );
    }

    #[test]
    fn linux_takes_a_new_size_up_by_a_rescan() {
        assert_eq!(
            way().grown()[0].text,
            "iscsiadm -m node -T iqn.2026-11.org.example:a -p [2001:db8::1]:3260 --rescan\n\
             resize2fs /dev/disk/by-id/wwn-0x3a1b2c3d4e5f6071"
        );
    }
}
