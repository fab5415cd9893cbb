use super::parse;

#[test]
fn sizes_have_units_of_either_kind() {
    let sizes = ["512MiB", "4 GiB", "2GB", "1k", "1000", "0"].map(|text| parse(text).unwrap());
    assert_eq!(sizes, [512 << 20, 4 << 30, 2_000_000_000, 1024, 1000, 0]);
    for wrong in ["", "much", "1.5GiB", "-1", "4 TiB", "99999999999GiB"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}
