//! The `--export` syntax: `KIND:WHAT[,OPTION]…`, as one writes for qemu-nbd or nbdkit.

use std::path::PathBuf;

use backstores::{CacheMode, StoreOptions, StoreSource};
use iscsi_proto::Lun;
use target_core::scsi::{DeviceType, SoftThreshold, UnitConfig};

use crate::error::StartError;
use crate::size::parse_size;

/// One disk to serve: where its bytes are, how they are kept, and what it looks like to initiators.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Export {
    pub(crate) device_type: DeviceType,
    pub(crate) source: StoreSource,
    pub(crate) options: StoreOptions,
    /// The file with the key that everything on the store is encrypted with.
    pub(crate) encrypt: Option<PathBuf>,
    /// Offer thin provisioning where the store can give space back.
    pub(crate) thin: bool,
    pub(crate) removable: bool,
    pub(crate) serial: Option<String>,
    pub(crate) strings: InquiryStrings,
    /// When initiators are warned that space runs out.
    pub(crate) soft_threshold: Option<SoftThreshold>,
    /// Pinned LUN; the next free one otherwise.
    pub(crate) lun: Option<u16>,
}

/// What INQUIRY calls the disk where that was asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct InquiryStrings {
    pub(crate) vendor: Option<String>,
    pub(crate) product: Option<String>,
    pub(crate) revision: Option<String>,
}

impl InquiryStrings {
    /// The same unit called so.
    pub(crate) fn apply(&self, config: UnitConfig) -> UnitConfig {
        let or = |asked: &Option<String>, own: String| asked.clone().unwrap_or(own);
        UnitConfig {
            vendor: or(&self.vendor, config.vendor),
            product: or(&self.product, config.product),
            revision: or(&self.revision, config.revision),
            ..config
        }
    }
}

/// The syntax in one line, for messages and help.
pub(crate) const SYNTAX: &str = "memory:SIZE, file:PATH, block:/dev/X, null:SIZE or cdrom:ISOFILE, then options after commas: \
     size=10G, ro, block-size=512|4096, physical-block-size=N, cache=writeback|writethrough, direct, encrypt=KEYFILE, pi=1, \
     serial=TEXT, vendor=TEXT, product=TEXT, revision=TEXT, thin=off, soft-threshold=PERCENT%|SIZE, removable, lun=N";

impl Export {
    /// Reads a specification. The message of an error names the part that is wrong and what would be right.
    pub(crate) fn parse(spec: &str) -> Result<Self, StartError> {
        parse(spec).map_err(|problem| StartError::option("--export", spec, problem))
    }
}

/// How a store is called in messages.
pub(crate) fn describe(device_type: DeviceType, source: &StoreSource) -> String {
    match source {
        StoreSource::File { path, .. } if device_type == DeviceType::Cdrom => {
            format!("CD-ROM image {}", path.display())
        }
        StoreSource::Memory { .. } => "memory".into(),
        StoreSource::File { path, .. } => format!("file {}", path.display()),
        StoreSource::Block { path } => format!("block device {}", path.display()),
        StoreSource::Null { .. } => "null (keeps nothing)".into(),
    }
}

fn parse(spec: &str) -> Result<Export, String> {
    let (kind, rest) = spec
        .split_once(':')
        .ok_or_else(|| format!("not of the form {SYNTAX}"))?;
    let (what, options) = match rest.split_once(',') {
        Some((what, options)) => (what, options.split(',').collect()),
        None => (rest, Vec::new()),
    };
    let is_cdrom = kind == "cdrom";
    let mut export = Export {
        device_type: if is_cdrom {
            DeviceType::Cdrom
        } else {
            DeviceType::Disk
        },
        source: source(kind, what)?,
        options: StoreOptions {
            read_only: is_cdrom,
            block_size: is_cdrom.then_some(CDROM_BLOCK),
            ..StoreOptions::default()
        },
        encrypt: None,
        thin: true,
        removable: is_cdrom,
        serial: None,
        strings: InquiryStrings::default(),
        soft_threshold: None,
        lun: None,
    };
    let mut seen = Vec::new();
    for option in options {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        if seen.contains(&key) {
            return Err(format!("option {key:?} is given twice"));
        }
        seen.push(key);
        set(&mut export, key, value)?;
    }
    check_threshold(&export)?;
    Ok(export)
}

fn source(kind: &str, what: &str) -> Result<StoreSource, String> {
    let size = || match parse_size(what) {
        Some(size) if size > 0 => Ok(size),
        _ => Err(format!("{what:?} is no size; write for example {kind}:256M")),
    };
    let path = || match what {
        "" => Err(format!("the path is missing; write {kind}:PATH")),
        path => Ok(PathBuf::from(path)),
    };
    match kind {
        "memory" => Ok(StoreSource::Memory { size: size()? }),
        "null" => Ok(StoreSource::Null { size: size()? }),
        "cdrom" | "file" => Ok(StoreSource::File {
            path: path()?,
            size: None,
        }),
        "block" => Ok(StoreSource::Block { path: path()? }),
        _ => Err(format!("{kind:?} is no kind of store; known are {SYNTAX}")),
    }
}

fn set(export: &mut Export, key: &str, value: Option<&str>) -> Result<(), String> {
    let number = |wanted: &str| {
        let value = value.unwrap_or_default();
        value
            .parse::<u32>()
            .map_err(|_| format!("{key}={value}: {wanted}"))
    };
    if export.device_type == DeviceType::Cdrom && OF_DISKS.contains(&key) {
        return Err(format!(
            "{key} is for disks; a CD-ROM is removable, read-only and has blocks of 2048 bytes"
        ));
    }
    match (key, value) {
        ("size", Some(text)) => {
            let bytes = parse_size(text).filter(|bytes| *bytes > 0);
            let bytes = bytes.ok_or_else(|| format!("size={text} is no size; write for example size=10G"))?;
            match &mut export.source {
                StoreSource::File { size, .. } => *size = Some(bytes),
                _ => return Err("size= is for file: only; memory:SIZE and null:SIZE carry theirs".into()),
            }
        }
        ("ro", None) => export.options.read_only = true,
        ("direct", None) => match export.source {
            StoreSource::File { .. } | StoreSource::Block { .. } => export.options.direct = true,
            _ => return Err("direct is for file: and block: only".into()),
        },
        ("removable", None) => export.removable = true,
        ("block-size", Some(text)) => match text {
            "512" => export.options.block_size = Some(512),
            "4096" => export.options.block_size = Some(4096),
            _ => return Err(format!("block-size={text}: it is 512 or 4096")),
        },
        ("physical-block-size", Some(_)) => {
            let wanted = "a power of two from 512 to 65536, bytes";
            let bytes = number(wanted)?;
            if !bytes.is_power_of_two() || !(512..=65_536).contains(&bytes) {
                return Err(format!("physical-block-size={bytes}: {wanted}"));
            }
            export.options.physical_block_size = Some(bytes);
        }
        ("cache", Some("writeback")) => export.options.cache = CacheMode::WriteBack,
        ("cache", Some("writethrough")) => export.options.cache = CacheMode::WriteThrough,
        ("cache", _) => return Err("cache is writeback or writethrough".into()),
        ("pi", Some("1")) => export.options.protection = true,
        ("pi", Some("0")) => export.options.protection = false,
        ("encrypt", Some("")) => return Err("encrypt= needs the path of a key file".into()),
        ("encrypt", Some(path)) => export.encrypt = Some(path.into()),
        ("serial", Some(text)) => {
            if text.is_empty() || text.len() > 36 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "serial={text}: 1 to 36 printable ASCII characters without spaces"
                ));
            }
            export.serial = Some(text.into());
        }
        ("vendor", Some(text)) => export.strings.vendor = Some(ascii(key, text, 8)?),
        ("product", Some(text)) => export.strings.product = Some(ascii(key, text, 16)?),
        ("revision", Some(text)) => export.strings.revision = Some(ascii(key, text, 4)?),
        ("soft-threshold", Some(text)) => export.soft_threshold = Some(threshold(text)?),
        ("thin", Some("on")) => export.thin = true,
        ("thin", Some("off")) => export.thin = false,
        ("lun", Some(_)) => {
            let wanted = format!("a number from 0 to {}", Lun::MAX_NUMBER);
            let lun = number(&wanted)?;
            let fits = u16::try_from(lun).ok().filter(|lun| *lun <= Lun::MAX_NUMBER);
            export.lun = Some(fits.ok_or_else(|| format!("lun={lun}: {wanted}"))?);
        }
        _ => {
            let given = value.map_or_else(|| key.into(), |value| format!("{key}={value}"));
            return Err(format!("{given:?} is no option; known are {SYNTAX}"));
        }
    }
    Ok(())
}

fn ascii(key: &str, text: &str, longest: usize) -> Result<String, String> {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if text.trim().is_empty() || text.len() > longest || !printable {
        return Err(format!("{key}={text}: 1 to {longest} printable ASCII characters"));
    }
    Ok(text.into())
}

fn threshold(text: &str) -> Result<SoftThreshold, String> {
    let threshold = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(SoftThreshold::Percent),
        None => parse_size(text)
            .filter(|bytes| *bytes > 0)
            .map(SoftThreshold::Bytes),
    };
    threshold.ok_or_else(|| format!("soft-threshold={text}: 1% to 100%, or a size such as 10G"))
}

/// A threshold is of use only where the space that is taken can be known and given back.
fn check_threshold(export: &Export) -> Result<(), String> {
    let knows_space = matches!(
        export.source,
        StoreSource::File { .. } | StoreSource::Memory { .. }
    );
    match export.soft_threshold {
        Some(_) if !knows_space => Err("soft-threshold= is for file: and memory: only".into()),
        Some(_) if !export.thin => Err("soft-threshold= and thin=off contradict each other".into()),
        Some(_) | None => Ok(()),
    }
}

/// Options that make no sense for a disc, or say of it what is so.
const OF_DISKS: [&str; 11] = [
    "block-size",
    "cache",
    "direct",
    "encrypt",
    "physical-block-size",
    "pi",
    "removable",
    "ro",
    "size",
    "soft-threshold",
    "thin",
];

/// Blocks of CDs and DVDs.
const CDROM_BLOCK: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_understood() {
        let spec = "file:/srv/a.img,size=10G,ro,block-size=4096,physical-block-size=8192,cache=writethrough,direct,\
                    encrypt=/srv/key,pi=1,serial=A1,vendor=ACME,product=Fast disk,revision=7.1,removable,soft-threshold=80%,\
                    lun=7";
        let export = Export::parse(spec).unwrap();
        assert_eq!(
            export.source,
            StoreSource::File {
                path: "/srv/a.img".into(),
                size: Some(10 << 30)
            }
        );
        assert_eq!(
            export.options,
            StoreOptions {
                read_only: true,
                block_size: Some(4096),
                physical_block_size: Some(8192),
                cache: CacheMode::WriteThrough,
                direct: true,
                protection: true,
            }
        );
        assert_eq!((export.thin, export.removable, export.lun), (true, true, Some(7)));
        assert_eq!(export.serial.as_deref(), Some("A1"));
        assert_eq!(export.encrypt, Some("/srv/key".into()));
        assert_eq!(export.strings.vendor.as_deref(), Some("ACME"));
        assert_eq!(export.strings.product.as_deref(), Some("Fast disk"));
        assert_eq!(export.strings.revision.as_deref(), Some("7.1"));
        assert_eq!(export.soft_threshold, Some(SoftThreshold::Percent(80)));
        let sized = Export::parse("memory:1G,soft-threshold=512M,thin=on").unwrap();
        assert_eq!(sized.soft_threshold, Some(SoftThreshold::Bytes(512 << 20)));
        assert!(!Export::parse("memory:1M,thin=off").unwrap().thin);
    }

    #[test]
    fn an_iso_file_is_a_removable_read_only_disc() {
        let export = Export::parse("cdrom:/srv/a.iso,lun=3").unwrap();
        let source = StoreSource::File {
            path: "/srv/a.iso".into(),
            size: None,
        };
        assert_eq!((export.device_type, &export.source), (DeviceType::Cdrom, &source));
        assert_eq!(
            (
                export.removable,
                export.options.read_only,
                export.options.block_size
            ),
            (true, true, Some(2048))
        );
        assert_eq!(describe(export.device_type, &source), "CD-ROM image /srv/a.iso");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (spec, part) in [
            ("disk.img", "not of the form"),
            ("nfs:/x", "\"nfs\" is no kind of store"),
            ("memory:lots", "\"lots\" is no size"),
            ("memory:0", "\"0\" is no size"),
            ("file:", "the path is missing"),
            ("cdrom:", "the path is missing"),
            ("cdrom:a.iso,size=1M", "size is for disks"),
            ("cdrom:a.iso,ro", "ro is for disks"),
            ("memory:1M,size=2M", "size= is for file: only"),
            ("memory:1M,direct", "direct is for file: and block: only"),
            ("memory:1M,block-size=520", "block-size=520: it is 512 or 4096"),
            ("memory:1M,physical-block-size=3000", "a power of two"),
            ("memory:1M,cache=fast", "cache is writeback or writethrough"),
            ("memory:1M,lun=16384", "a number from 0 to 16383"),
            ("memory:1M,lun=x", "lun=x: a number"),
            ("memory:1M,serial=", "serial="),
            ("memory:1M,pi=2", "\"pi=2\" is no option"),
            ("memory:1M,encrypt=", "the path of a key file"),
            ("memory:1M,vendor=ninechars", "1 to 8 printable"),
            ("memory:1M,revision=", "1 to 4 printable"),
            ("memory:1M,soft-threshold=0%", "1% to 100%"),
            ("memory:1M,soft-threshold=much", "1% to 100%"),
            ("null:1M,soft-threshold=5%", "for file: and memory: only"),
            ("memory:1M,soft-threshold=5%,thin=off", "contradict"),
            ("memory:1M,ro=yes", "\"ro=yes\" is no option"),
            ("memory:1M,ro,ro", "given twice"),
            ("memory:1M,colour=blue", "\"colour=blue\" is no option"),
        ] {
            let message = Export::parse(spec).unwrap_err().to_string();
            assert!(
                message.contains(part) && message.contains(spec),
                "{spec}: {message}"
            );
        }
    }
}
