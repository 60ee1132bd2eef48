//! How an initiator gets to a LUN: the exact commands for Linux, Windows, ESXi and QEMU, with the addresses of the portals
//! as this browser would reach them. Secrets are not in them: they are never shown, and stand as a word to replace.

use std::net::SocketAddr;

use management::model::{Credential, LunMap, Method, Object, Portal, Target, Unit};

use crate::Web;

/// A portal of a target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PortalLine {
    /// `address:port` as an initiator needs it.
    pub(crate) address: String,
    /// What it is called in the configuration; empty for those given at the start.
    pub(crate) id: String,
    /// It listens.
    pub(crate) listening: bool,
    /// Why it does not.
    pub(crate) problem: String,
}

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
struct Way {
    target: String,
    portal: String,
    lun: u16,
    naa: String,
    /// CHAP name to log in with.
    chap: Option<String>,
    /// The target proves itself as well, by this CHAP name.
    mutual: Option<String>,
    /// An initiator that is let in by name.
    initiator: Option<String>,
    /// Discovery asks for CHAP, so that the target is written down rather than discovered.
    discovery_chap: bool,
}

/// Whether the portals of a group lead to a target. One that names no group is reached by all.
fn leads(target: &Target, group: u16) -> bool {
    target.portal_groups.is_empty() || target.portal_groups.contains(&group)
}

/// The portals that lead to a target. An address that stands for all of them is told as `host`, by which the browser came.
pub(crate) fn portals(web: &Web, target: &Target, host: &str) -> Vec<PortalLine> {
    let (model, statuses) = (web.control().model(), web.control().port_statuses());
    let configured: Vec<&Portal> = model.all::<Portal>().collect();
    let directory = web.control().node().directory();
    let given = directory.portals.iter().filter(|portal| {
        leads(target, portal.tpgt.0) && !configured.iter().any(|it| it.address == portal.address)
    });
    let given = given.map(|portal| PortalLine {
        address: reachable(portal.address, host),
        id: String::new(),
        listening: true,
        problem: String::new(),
    });
    let own = configured
        .iter()
        .filter(|portal| leads(target, portal.portal_group) && portal.enabled);
    let own = own.map(|portal| {
        let key = portal.key();
        let status = statuses.iter().find(|status| status.id == key);
        PortalLine {
            address: reachable(portal.address, host),
            listening: status.is_some_and(|status| status.listening)
                || directory
                    .portals
                    .iter()
                    .filter(|it| it.address == portal.address)
                    .count()
                    > 1,
            problem: status
                .and_then(|status| status.problem.clone())
                .unwrap_or_default(),
            id: key,
        }
    });
    given.chain(own).collect()
}

/// The commands for one LUN; none while its target has no portal.
pub(crate) fn commands(web: &Web, target: &Target, map: &LunMap, host: &str) -> Vec<Commands> {
    let model = web.control().model();
    let portals = portals(web, target, host);
    let Some(portal) = portals
        .iter()
        .find(|portal| portal.listening)
        .or_else(|| portals.first())
    else {
        return Vec::new();
    };
    let chap_name = |id: &str| model.get::<Credential>(id).map(|it| it.name.clone());
    let initiator = model
        .access_of(&target.name)
        .find_map(|rule| rule.initiator.clone());
    let individual = initiator.as_ref().and_then(|name| {
        let known = model.get::<management::model::Initiator>(&name.to_string())?;
        chap_name(known.credential.as_ref()?.as_str())
    });
    let authentication = &target.authentication;
    let is_chap = authentication.method == Method::Chap;
    let common = authentication
        .credentials
        .first()
        .and_then(|id| chap_name(id.as_str()));
    let way = Way {
        target: target.name.to_string(),
        portal: portal.address.clone(),
        lun: map.lun,
        naa: model
            .get::<Unit>(map.unit.as_str())
            .and_then(|unit| unit.naa.clone())
            .unwrap_or_default(),
        chap: individual.or(common).filter(|_| is_chap),
        mutual: authentication
            .mutual
            .as_ref()
            .and_then(|id| chap_name(id.as_str()))
            .filter(|_| is_chap),
        initiator: initiator.map(|name| name.to_string()),
        discovery_chap: model.settings().discovery.method == Method::Chap,
    };
    vec![
        Commands {
            id: "linux",
            label: "Linux (open-iscsi)",
            text: way.linux(),
        },
        Commands {
            id: "windows",
            label: "Windows (PowerShell as administrator)",
            text: way.windows(),
        },
        Commands {
            id: "esxi",
            label: "VMware ESXi (shell)",
            text: way.esxi(),
        },
        Commands {
            id: "qemu",
            label: "QEMU",
            text: way.qemu(),
        },
    ]
}

impl Way {
    fn linux(&self) -> String {
        let node = format!("sudo iscsiadm -m node -T {}", self.target);
        let mut lines = vec![if self.discovery_chap {
            format!("{node} -p {} -o new", self.portal)
        } else {
            format!("sudo iscsiadm -m discovery -t sendtargets -p {}", self.portal)
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
        lines.push(format!("lsblk /dev/disk/by-id/wwn-0x{}", self.naa));
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

fn reachable(address: SocketAddr, host: &str) -> String {
    if address.ip().is_unspecified() && !host.is_empty() {
        format!("{host}:{}", address.port())
    } else {
        address.to_string()
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
            "sudo iscsiadm -m discovery -t sendtargets -p [2001:db8::1]:3260\n\
             sudo iscsiadm -m node -T iqn.2026-11.org.example:a -o update -n node.startup -v automatic\n\
             sudo iscsiadm -m node -T iqn.2026-11.org.example:a --login\n\
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
        let first = "sudo iscsiadm -m node -T iqn.2026-11.org.example:a -p [2001:db8::1]:3260 -o new\n";
        assert!(way.linux().starts_with(first));
    }

    #[test]
    fn a_portal_for_all_addresses_is_told_as_the_browser_came() {
        assert_eq!(
            reachable("0.0.0.0:3260".parse().unwrap(), "san.example.org"),
            "san.example.org:3260"
        );
        assert_eq!(
            reachable("[::]:3261".parse().unwrap(), "[2001:db8::1]"),
            "[2001:db8::1]:3261"
        );
        assert_eq!(
            reachable("192.0.2.1:3260".parse().unwrap(), "x"),
            "192.0.2.1:3260"
        );
    }
}
