use super::*;

const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/pids rw shared:9 master:2 - cgroup cgroup rw,pids
";

#[test]
fn the_mount_of_each_version_is_told_by_its_type_and_options() {
    let at = |path: &str| Some(PathBuf::from(path));
    let pids = mount_point(MOUNTS, |kind, options| kind == "cgroup" && options.contains("pids"));
    assert_eq!(pids, at("/sys/fs/cgroup/pids"));
    assert_eq!(mount_point(MOUNTS, |kind, _| kind == "cgroup2"), at("/sys/fs/cgroup/unified"));
    assert_eq!(mount_point("", |_, _| true), None);
}

#[test]
fn a_group_that_is_not_there_is_none() {
    assert_eq!(version_1("8:pids:/no/such/group\n", MOUNTS), None);
    assert_eq!(version_2("0::/no/such/group\n", MOUNTS), None);
    assert_eq!(version_1("3:cpu,cpuacct:/\n0::/\n", MOUNTS), None);
}
