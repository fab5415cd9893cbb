use std::sync::Mutex;

use lf_mcp::PoolOptions;

use super::*;

const HEAD: &str = "version: v1\nname: demo\nnamespace: default\n";

fn models(names: &[&str]) -> String {
    let entries = names.iter().map(|name| format!("    - {{name: {name}, provider: demo, model: demo}}\n"));
    format!("{HEAD}runtime:\n  models:\n{}", entries.collect::<String>())
}

/// A directory with a project that was just read.
struct Bench {
    directory: tempfile::TempDir,
    reader: Reader,
}

impl Bench {
    fn new(text: &str) -> Self {
        Self::with(text, |path| Ok(lf_config::load(path, |_| None)?.into()))
    }

    /// What happens right after the file, and an `.env` with `KEY`, were read.
    fn changed(text: &str, change: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".env"), "KEY=old\n").unwrap();
        let loader = |path: &Path| -> Result<Opened, Broken> { Ok(lf_config::load(path, |_| None)?.into()) };
        Self::read(directory, text, loader, change)
    }

    fn with(text: &str, loader: impl Fn(&Path) -> Result<Opened, Broken> + Send + Sync + 'static) -> Self {
        Self::read(tempfile::tempdir().unwrap(), text, loader, |_| {})
    }

    fn read(
        directory: tempfile::TempDir,
        text: &str,
        loader: impl Fn(&Path) -> Result<Opened, Broken> + Send + Sync + 'static,
        change: impl FnOnce(&Path),
    ) -> Self {
        let path = directory.path().join("llamafarm.yaml");
        std::fs::write(&path, text).unwrap();
        let main = lf_config::load(&path, |_| None).unwrap().into();
        change(directory.path());
        let pool = SessionPool::new(PoolOptions::new(Vec::new(), PathBuf::from("lf")));
        let data_dir = directory.path().join("data");
        let reader = Reader::new(
            Some(main),
            data_dir,
            Box::new(loader),
            pool,
            Arc::default(),
            Arc::new(Audit::none()),
        );
        Self { reader, directory }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.directory.path().join("llamafarm.yaml"), text).unwrap();
    }

    fn look(&self, how: How) -> Look {
        self.reader.look(&Key::Main, how).unwrap()
    }

    fn status(&self) -> ConfigStatus {
        self.reader.status().remove(0)
    }

    fn models(&self) -> Vec<String> {
        self.reader.main().unwrap().models.keys().cloned().collect()
    }
}

#[test]
fn a_file_that_changed_is_a_new_generation_and_whoever_has_the_old_one_keeps_it() {
    let bench = Bench::new(&models(&["a"]));
    let before = bench.reader.main().unwrap();
    assert_eq!(bench.look(How::Quiet), Look::Same);
    assert_eq!(bench.status().active.number, 1);
    let text = models(&["a", "b"]);
    bench.write(&text);
    assert_eq!(bench.look(How::Quiet), Look::Taken);
    assert_eq!(bench.models(), ["a", "b"]);
    assert_eq!(before.models.len(), 1);
    let active = bench.status().active;
    assert_eq!((active.number, &active.hash), (2, &disk::revision(text.as_bytes())));
    assert_eq!(bench.look(How::Quiet), Look::Same);
}

#[test]
fn a_file_that_is_written_again_as_it_was_is_the_same_generation() {
    let bench = Bench::new(&models(&["a"]));
    bench.write(&models(&["a"]));
    assert_eq!((bench.look(How::Quiet), bench.look(How::Forced)), (Look::Same, Look::Same));
    assert_eq!(bench.status().active.number, 1);
}

#[test]
fn a_mistake_leaves_the_last_good_generation_and_is_told_with_its_place() {
    let bench = Bench::new(&models(&["a"]));
    // all of another length than the one before: writes in place are not told apart within one tick of the clock
    bench.write(&models(&["b"]).replace("provider: demo", "provider: dmeoo"));
    assert_eq!(bench.look(How::Quiet), Look::Refused);
    assert_eq!(bench.look(How::Quiet), Look::Same, "the same mistake is not told again");
    let status = bench.status();
    assert_eq!((status.active.number, bench.models()), (1, vec!["a".to_owned()]));
    let error = status.refused.unwrap().broken.error().cloned().unwrap();
    assert_eq!(error.position.map(|at| (at.line, at.column)), Some((6, 27)));
    bench.write(&models(&["a"]));
    assert_eq!(bench.look(How::Quiet), Look::Same);
    assert!(bench.status().refused.is_none() && bench.status().active.number == 1);
    bench.write(&models(&["bb"]));
    assert_eq!(bench.look(How::Quiet), Look::Taken);
    assert_eq!(bench.status().active.number, 2);
}

#[test]
fn what_is_cut_is_not_taken_even_where_it_is_right() {
    let whole = models(&["a", "b", "c"]);
    let bench = Bench::new(&whole);
    let mut unsettled = 0;
    for end in 0..whole.len() {
        bench.write(&whole[..end]);
        let look = bench.look(How::Quiet);
        assert!(matches!(look, Look::Unsettled | Look::Refused), "{look:?} of {:?}", &whole[..end]);
        unsettled += usize::from(look == Look::Unsettled);
        assert_eq!(bench.models().len(), 3);
    }
    assert!(unsettled > 2, "some beginnings are right");
    bench.write(&models(&["a", "b"]));
    assert_eq!((bench.look(How::Quiet), bench.look(How::Calm)), (Look::Unsettled, Look::Taken));
}

#[test]
fn a_file_without_the_models_it_had_is_taken_only_when_somebody_says_so() {
    let bench = Bench::new(&models(&["a"]));
    let text = format!("{HEAD}# nothing else\n");
    bench.write(&text);
    assert_eq!(bench.look(How::Calm), Look::Refused);
    assert!(bench.status().refused.unwrap().broken.reason.contains("no `runtime.models` any more"));
    assert_eq!(bench.look(How::Forced), Look::Taken);
    assert_eq!(bench.models().len(), 0);
}

#[test]
fn variables_beside_the_file_count_as_a_part_of_it() {
    let model = "{name: a, provider: openai, model: m, api_key: '${env:KEY}'}";
    let bench = Bench::new(&format!("{HEAD}runtime: {{models: [{model}]}}\n"));
    assert!(bench.reader.main().unwrap().models["a"].is_err());
    std::fs::write(bench.directory.path().join(".env"), "KEY=x\n").unwrap();
    assert_eq!(bench.look(How::Quiet), Look::Taken);
    assert!(bench.reader.main().unwrap().models["a"].is_ok());
}

/// Between the read and the first look a daemon opens its store, which may take long.
#[test]
fn what_changes_while_the_daemon_starts_is_taken_with_the_first_look() {
    let model = "{name: a, provider: openai, model: m, api_key: \"${env:KEY}\"}";
    let text = format!("{HEAD}runtime: {{models: [{model}]}}\n");
    let edited = text.replace("name: a", "name: b");
    for (path, change) in
        [("llamafarm.yaml", Some(edited.as_str())), (".env", Some("KEY=x\n")), (".env", None)]
    {
        let bench = Bench::changed(&text, |directory| {
            std::fs::write(directory.join(path), change.unwrap_or("KEY=old\n")).unwrap();
        });
        let is_changed = change.is_some();
        assert_eq!(bench.reader.changed(), [Key::Main]);
        assert_eq!(bench.look(How::Quiet), if is_changed { Look::Taken } else { Look::Same }, "{path}");
        assert_eq!(bench.look(How::Quiet), Look::Same);
        assert!(bench.reader.changed().is_empty());
        let models = bench.reader.main().unwrap().models.clone();
        assert_eq!(models.contains_key("b"), path == "llamafarm.yaml");
        let Ok(model) = &models[0] else { panic!("{models:?}") };
        let is_new = model.api_key.as_ref().is_some_and(|key| key.expose() == "x");
        assert_eq!(is_new, is_changed && path == ".env");
    }
}

#[test]
fn a_file_that_is_gone_or_is_none_leaves_the_last_good_generation() {
    let bench = Bench::new(&models(&["a"]));
    let path = bench.directory.path().join("llamafarm.yaml");
    let reason = || bench.status().refused.unwrap().broken.reason.clone();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(bench.look(How::Quiet), Look::Refused);
    assert!(reason().contains("cannot read"), "{}", reason());
    std::fs::write(path.with_extension("toml"), "").unwrap();
    assert_eq!(bench.look(How::Forced), Look::Refused);
    assert!(reason().contains("llamafarm.toml is there: the next start reads it"), "{}", reason());
    std::fs::create_dir(&path).unwrap();
    assert_eq!(bench.look(How::Quiet), Look::Refused);
    assert!(reason().contains("a directory"), "{}", reason());
    std::fs::remove_dir(&path).unwrap();
    bench.write(&models(&["b"]));
    assert_eq!(bench.look(How::Quiet), Look::Taken);
    assert_eq!(bench.models(), ["b"]);
}

#[test]
fn what_changes_under_the_read_is_read_again() {
    let next: Arc<Mutex<Vec<String>>> = Arc::default();
    let queue = next.clone();
    let bench = Bench::with(&models(&["a"]), move |path| {
        let read = lf_config::load(path, |_| None)?.into();
        if let Some(text) = queue.lock().unwrap().pop() {
            std::fs::write(path, text).unwrap();
        }
        Ok(read)
    });
    next.lock().unwrap().push(models(&["right", "in", "the", "end"]));
    bench.write(&models(&["half"]));
    assert_eq!(bench.look(How::Quiet), Look::Taken);
    assert_eq!((bench.models().len(), bench.status().active.number), (4, 2), "`half` never was active");
    for more in [["p"].as_slice(), &["p", "q"], &["p", "q", "r"]] {
        next.lock().unwrap().push(models(more));
    }
    bench.write(&models(&["never", "rests"]));
    assert_eq!(bench.look(How::Quiet), Look::Unsettled);
    assert_eq!(bench.status().active.number, 2);
}

#[test]
fn an_edit_sends_a_variable_nowhere_new_until_a_person_approves_it() {
    let bench = Bench::new(&models(&["a"]));
    std::fs::write(bench.directory.path().join(".env"), "KEY=canary\n").unwrap();
    let model =
        "{name: b, provider: openai, model: m, base_url: 'https://b.example/v1', api_key: '${env:KEY}'}";
    bench.write(&format!("{}    - {model}\n", models(&["a"])));
    assert_eq!(bench.look(How::Forced), Look::Taken);
    let main = bench.reader.main().unwrap();
    let reason = &main.models["b"].as_ref().unwrap_err().reason;
    assert!(reason.contains("variable `KEY` may not go to `https://b.example`"), "{reason}");
    let pending = bench.reader.pending("default", "demo").unwrap();
    assert_eq!(pending.len(), 1);
    bench.reader.approve("default", "demo", &pending).unwrap();
    assert_eq!(bench.look(How::Quiet), Look::Taken, "the file says the same, and may have more");
    let main = bench.reader.main().unwrap();
    assert!(main.models["b"].is_ok() && bench.status().active.number == 3);
}
