//! What the profile `strict` leaves a child: files by Landlock, system calls by seccomp, no rights of root.

use std::ffi::OsStr;
use std::io;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, NetPort, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities};

use crate::order::{Confinement, Missing, Network};
use crate::syscalls;

/// The first that bounds all ways to change a file: before, one that may not be written can be truncated.
const FILES: ABI = ABI::V3;

/// Programs and their libraries.
const PROGRAMS: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system/sw",
];

/// What programs look at to find libraries, the time, certificates, hosts and processors. Not who the users are.
const SETTINGS: [&str; 26] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.alias",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/static/ssl",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/mime.types",
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines this thread and all it starts. Gives what the kernel does not have.
pub(crate) fn confine(confinement: &Confinement, program: &OsStr) -> io::Result<Vec<Missing>> {
    let mut missing = Vec::new();
    if bound_files(confinement, program).map_err(io::Error::other)? != RulesetStatus::FullyEnforced {
        missing.push(Missing::Landlock);
    }
    give_up_rights()?;
    // a dump of its memory would be written where it cannot be seen
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if syscalls::bound(&confinement.network).is_err() {
        missing.push(Missing::Seccomp);
    }
    Ok(missing)
}

fn bound_files(confinement: &Confinement, program: &OsStr) -> Result<RulesetStatus, RulesetError> {
    let read = AccessFs::from_read(FILES);
    // no devices: what is behind one is no file
    let write = AccessFs::from_all(FILES) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(FILES))?;
    if confinement.network != Network::All {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut ruleset = ruleset
        .create()?
        .add_rules(path_beneath_rules(PROGRAMS.iter().chain(&SETTINGS), read))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(path_beneath_rules([program], read))?
        .add_rules(path_beneath_rules(&confinement.read, read))?
        .add_rules(path_beneath_rules(&confinement.write, write))?;
    if let Network::Ports(ports) = &confinement.network {
        for port in ports {
            ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Root without the rights of root: it may use what belongs to root, and nothing else. For others there is nothing to do,
/// as a start with no new rights gives them none.
fn give_up_rights() -> io::Result<()> {
    for right in CapabilitySet::all().iter() {
        // what the kernel does not know, or is gone already, cannot be given up
        let _ = remove_capability_from_bounding_set(right);
    }
    let mut sets = capabilities(None)?;
    sets.inheritable = CapabilitySet::empty();
    sets.permitted = CapabilitySet::empty();
    sets.effective = CapabilitySet::empty();
    Ok(set_capabilities(None, sets)?)
}
