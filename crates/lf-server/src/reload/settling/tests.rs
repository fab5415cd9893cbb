use super::Happening::{Touched, Writing, Written};
use super::*;

const FILE: &str = "/p/llamafarm.yaml";
const QUIETLY: Act = Act::Look(How::Quiet);
const CALMLY: Act = Act::Look(How::Calm);

/// Events at these milliseconds; then when what is due, counted from the first.
fn due(events: &[(u64, Happening)]) -> (u64, Act) {
    after(&mut Settling::default(), Instant::now(), events)
}

fn after(settling: &mut Settling, start: Instant, events: &[(u64, Happening)]) -> (u64, Act) {
    for (at, happening) in events {
        settling.note(start + Duration::from_millis(*at), Path::new(FILE), *happening);
    }
    let (when, act) = settling.due().unwrap();
    (u64::try_from((when - start).as_millis()).unwrap(), act)
}

#[test]
fn nothing_is_due_where_nothing_happened() {
    let mut settling = Settling::default();
    assert_eq!(settling.due(), None);
    settling.looked(Instant::now());
    assert_eq!(settling.due(), None);
}

#[test]
fn a_change_is_looked_at_after_a_fifth_of_a_second_without_another() {
    assert_eq!(due(&[(0, Touched)]), (200, QUIETLY));
    assert_eq!(due(&[(0, Touched), (150, Touched), (300, Touched)]), (500, QUIETLY));
    assert_eq!(due(&[(0, Writing), (1, Written)]), (201, QUIETLY));
}

#[test]
fn a_file_that_never_rests_is_looked_at_within_a_second() {
    let events: Vec<_> = (0..100).map(|at| (at * 100, Touched)).collect();
    assert_eq!(due(&events), (900, Act::Look(How::Quiet)), "each is whole");
    let events: Vec<_> = (0..100).flat_map(|at| [(at * 100, Writing), (at * 100, Written)]).collect();
    let (mut settling, start) = (Settling::default(), Instant::now());
    assert_eq!(after(&mut settling, start, &events), (450, Act::Note));
    settling.noted();
    assert_eq!(after(&mut settling, start, &[]), (900, Act::Look(How::Hurried)));
}

#[test]
fn a_file_that_is_open_for_writing_is_waited_for() {
    assert_eq!(due(&[(0, Touched), (1, Writing), (500, Writing), (2000, Writing)]), (7000, CALMLY));
    assert_eq!(due(&[(0, Writing), (100, Writing), (200, Writing), (201, Written)]), (401, QUIETLY));
    let events: Vec<_> = (0..100).map(|at| (at * 1000, Writing)).collect();
    assert_eq!(due(&events), (30_000, CALMLY), "not for ever");
}

#[test]
fn another_file_that_is_closed_leaves_the_first_one_open() {
    let (mut settling, start) = (Settling::default(), Instant::now());
    settling.note(start, Path::new(FILE), Writing);
    settling.note(start, Path::new("/p/.env"), Writing);
    settling.note(start, Path::new("/p/.env"), Written);
    assert_eq!(settling.due(), Some((start + OPEN_QUIET, CALMLY)));
    settling.note(start, Path::new(FILE), Touched);
    assert_eq!(settling.due(), Some((start + QUIET, QUIETLY)), "another file has taken its name");
}

#[test]
fn what_is_written_in_place_right_after_a_look_may_be_the_next_piece() {
    let (mut settling, start) = (Settling::default(), Instant::now());
    settling.note(start, Path::new(FILE), Writing);
    settling.looked(start);
    assert_eq!(after(&mut settling, start, &[(300, Writing), (301, Written)]), (750, Act::Note));
    settling.noted();
    assert_eq!(after(&mut settling, start, &[]), (1001, CALMLY));
    settling.looked(start + Duration::from_millis(1001));
    assert_eq!(after(&mut settling, start, &[(1300, Touched)]), (1500, QUIETLY), "a whole file");
    settling.looked(start + Duration::from_millis(1500));
    assert_eq!(after(&mut settling, start, &[(2600, Writing), (2601, Written)]), (2801, QUIETLY));
}

#[test]
fn what_was_not_whole_is_looked_at_once_more() {
    let (mut settling, start) = (Settling::default(), Instant::now());
    settling.looked(start);
    settling.look_again(start);
    assert_eq!(settling.due(), Some((start + RESTLESS, CALMLY)));
}

#[test]
fn a_beginning_of_the_active_text_may_be_cut() {
    let active = "a: 1\nb: 2\n";
    let cut = |text, how| may_be_cut(text, active, (active, RESTLESS), how);
    assert!(cut("a: 1\n", How::Quiet) && cut("a: 1", How::Asked) && cut("", How::Hurried));
    assert!(cut("a: 2\nb: 3", How::Quiet), "it has lost the end of its last line");
    assert!(!cut("a: 1\n", How::Calm) && !cut("a: 1\n", How::Forced));
    assert!(!cut("a: 1\nb: 3\n", How::Quiet) && !cut(active, How::Quiet));
    assert!(!cut("a: 1\nb: 2\nc: 3\n", How::Quiet));
}

#[test]
fn a_text_that_grows_while_it_never_rests_may_come_in_pieces() {
    let cut = |text, last, ago, how| may_be_cut(text, "a: 1\n", (last, ago), how);
    assert!(cut("x: 1\ny: 2\n", "x: 1\n", HALFWAY, How::Hurried), "more of it");
    assert!(cut("x: 1\n", "", HALFWAY, How::Hurried), "the beginning");
    assert!(cut("x: 1\n", "x: 1\n", HALFWAY, How::Hurried), "the next piece may be on its way");
    assert!(!cut("x: 1\n", "x: 1\n", RESTLESS, How::Hurried), "nothing came for long");
    assert!(!cut("x: 2\ny: 2\n", "x: 1\n", HALFWAY, How::Hurried), "another one");
    assert!(!cut("x: 1\ny: 2\n", "x: 1\n", HALFWAY, How::Calm));
}
