//! Text formats in a journal: the name of their family.

use serde::{Deserialize as _, Deserializer, Serializer, de, ser};

use super::{TextFormat, named, names};

pub(crate) fn serialize<S: Serializer>(
    formats: &&'static [TextFormat],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let same = |known: &[TextFormat]| known.iter().map(|f| f.name).eq(formats.iter().map(|f| f.name));
    let name = names().find(|name| named(name).is_some_and(same));
    let name = name.ok_or_else(|| ser::Error::custom("text formats that belong to no family"))?;
    serializer.serialize_str(name)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static [TextFormat], D::Error> {
    let name = String::deserialize(deserializer)?;
    named(&name).ok_or_else(|| de::Error::custom(format!("no family of text formats is called `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::super::{TextFormat, named, names};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Kept(#[serde(with = "super")] &'static [TextFormat]);

    #[test]
    fn every_family_comes_back_with_its_own_formats() {
        for name in names() {
            let formats = named(name).unwrap();
            let kept = serde_json::to_string(&Kept(formats)).unwrap();
            let Kept(back) = serde_json::from_str(&kept).unwrap();
            assert_eq!(format!("{back:?}"), format!("{formats:?}"), "{name} as {kept}");
        }
        assert!(serde_json::from_str::<Kept>("\"morse\"").is_err());
    }
}
