//! Answers that are cut here, at a stop sequence that the upstream was not told about.

use proptest::prelude::*;

use super::scripts::{Said, all, cut, dialects, rendered, script};
use super::*;

const STOPS: [&str; 2] = ["END", "\n\n#"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_answer_that_is_cut_here_is_the_same_however_its_bytes_come(
        dialect in dialects(),
        mut script in script(),
        marks in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(STOPS.to_vec())), 1..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        for (at, mark) in marks {
            let said = at.index(script.said.len());
            if let Said::Text(text) = &mut script.said[said] {
                let place = text.floor_char_boundary(at.index(text.len() + 1));
                text.insert_str(place, mark);
            }
        }
        let text = rendered(dialect, &script).0.concat();
        let whole = joined(told_until(dialect, &STOPS, &[text.as_bytes()]));
        let in_parts = joined(told_until(dialect, &STOPS, &cut(text.as_bytes(), &cuts)));
        prop_assert_eq!(&in_parts, &whole, "{:?}\n{}", dialect, text);
        let one_by_one: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(&joined(told_until(dialect, &STOPS, &one_by_one)), &whole, "{:?}\n{}", dialect, text);
        // what would have been said without the stops, up to the first
        let uncut = joined(told(dialect, &[text.as_bytes()]));
        let said = all("text", &uncut).concat();
        let first = STOPS.iter().filter_map(|stop| said.find(stop)).min();
        prop_assert_eq!(all("text", &whole).concat(), &said[..first.unwrap_or(said.len())]);
        prop_assert_eq!(all("finish", &whole).len(), 1);
        prop_assert_eq!(all("error", &whole), Vec::<&str>::new());
        // reasoning may overtake what could still become a stop
        for kind in ["reasoning", "call", "usage", "finish"] {
            let same = all(kind, &whole).concat() == all(kind, &uncut).concat();
            prop_assert!(first.is_some() || same, "{:?} {:?}", whole, uncut);
        }
    }
}
