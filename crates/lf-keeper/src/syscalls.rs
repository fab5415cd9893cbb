//! Which system calls a confined child may not make: those that reach around the other bounds, or into the kernel.
//!
//! Refused calls fail as if the user had no right to them (`EPERM`), so that a program says so and goes on. What is not
//! listed works: servers are written in any language.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use crate::order::Network;

/// The port at which names are looked up.
const NAMES: u16 = 53;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Whatever their arguments.
const REFUSED: &[c_long] = &[
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // mounts and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    // keys of the kernel's, which belong to the user and not to the process
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // code in the kernel, and what it tells about itself
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_userfaultfd,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    // calls that no filter sees
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // files by other ways than paths
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // the machine
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

/// Of one processor only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS__sysctl];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

/// Bounds this thread and all it starts.
pub(crate) fn bound(network: &Network) -> Result<(), seccompiler::Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let refusing = |errno: i32, rules: Rules| -> Result<BpfProgram, seccompiler::Error> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()?)
    };
    let main = refusing(libc::EPERM, refused()?)?;
    let sockets = refusing(libc::EACCES, sockets(network)?)?;
    // what the C library then does by `clone`, whose arguments a filter can see
    let unseen = refusing(libc::ENOSYS, Rules::from([(libc::SYS_clone3, Vec::new())]))?;
    if cfg!(target_arch = "x86_64") {
        apply_filter(&other_numbers())?;
    }
    apply_filter(&unseen)?;
    apply_filter(&sockets)?;
    apply_filter(&main)
}

fn refused() -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_HERE).map(|number| (*number, Vec::new())).collect();
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    rules.insert(libc::SYS_clone, any(namespaces.map(|flag| has(0, flag)))?);
    // typing into somebody's terminal
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    rules.insert(
        libc::SYS_ioctl,
        any(typing.map(|request| is(1, i32::try_from(request).unwrap_or_default())))?,
    );
    // connecting by sending, which Landlock does not see
    rules.insert(libc::SYS_sendto, any([has(3, libc::MSG_FASTOPEN)])?);
    rules.insert(libc::SYS_sendmsg, any([has(2, libc::MSG_FASTOPEN)])?);
    rules.insert(libc::SYS_sendmmsg, any([has(3, libc::MSG_FASTOPEN)])?);
    Ok(rules)
}

/// Sockets of any kind but those of the network that is allowed, and the one that tells which addresses this machine has.
/// Those of this machine (`AF_UNIX`) are none of them: who may speak to Docker may do anything.
fn sockets(network: &Network) -> Result<Rules, seccompiler::Error> {
    /// Next to its kind, a socket is told this about itself.
    const FLAGS: [i32; 4] =
        [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK];
    let inner = [libc::AF_INET, libc::AF_INET6];
    let mut families = vec![libc::AF_NETLINK];
    if *network != Network::None {
        families.extend(inner);
    }
    let mut rules = vec![
        SeccompRule::new(families.iter().map(|family| is_not(0, *family)).collect::<Result<_, _>>()?)?,
        SeccompRule::new(vec![is(0, libc::AF_NETLINK)?, is_not(2, libc::NETLINK_ROUTE)?])?,
    ];
    if let Network::Ports(ports) = network {
        // Landlock bounds TCP alone, and of protocols that are like it, none
        let mut kinds = vec![(libc::SOCK_STREAM, libc::IPPROTO_TCP)];
        if ports.contains(&NAMES) {
            kinds.push((libc::SOCK_DGRAM, libc::IPPROTO_UDP));
        }
        for family in inner {
            let mut other = vec![is(0, family)?];
            for (kind, protocol) in &kinds {
                for flags in FLAGS {
                    other.push(is_not(1, kind | flags)?);
                    let exotic =
                        vec![is(0, family)?, is(1, kind | flags)?, is_not(2, 0)?, is_not(2, *protocol)?];
                    rules.push(SeccompRule::new(exotic)?);
                }
            }
            rules.push(SeccompRule::new(other)?);
        }
    }
    let mut rules = Rules::from([(libc::SYS_socket, rules)]);
    if *network != Network::All {
        // a socket that was bound to nothing takes any port by it, unseen by Landlock
        rules.insert(libc::SYS_listen, Vec::new());
    }
    Ok(rules)
}

/// One of these is enough.
fn any<const N: usize>(
    conditions: [Result<SeccompCondition, BackendError>; N],
) -> Result<Vec<SeccompRule>, BackendError> {
    conditions.into_iter().map(|condition| SeccompRule::new(vec![condition?])).collect()
}

fn is(argument: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Ne, value)
}

/// All of these bits are set.
fn has(argument: u8, bits: i32) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned())), bits)
}

/// The kernel looks at the lower half of these arguments, and so does the filter.
fn condition(argument: u8, by: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, by, u64::from(value.cast_unsigned()))
}

/// System calls of this processor have a second set of numbers (x32), which no rule above names: none of it works.
fn other_numbers() -> [sock_filter; 4] {
    /// `__X32_SYSCALL_BIT` of `asm/unistd.h`.
    const FIRST: u32 = 0x4000_0000;
    let statement = |code: u32, k: u32| instruction(code, 0, 0, k);
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    [
        // the number is the first thing a filter is told (`struct seccomp_data`)
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, FIRST),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}
