//! One mistake in the file: what is wrong, where, and what to try.

mod hidden;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use thiserror::Error;

/// Bytes of the source text.
pub type Span = Range<usize>;

/// More than this in one file is one mistake repeated; the rest is counted. Half as many that are no errors.
const MAX_DIAGNOSTICS: usize = 100;

/// Bytes: a longer line is not written by a person, and showing it serves nobody.
const MAX_SHOWN_LINE: usize = 2000;

/// A configuration file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// As it is shown to a person. Its extension decides between TOML and YAML (of which JSON is a part).
    pub path: PathBuf,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Warning,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Counted from 1, in characters, as editors do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A lowercase fragment without a final period.
    pub message: String,
    /// `None` for what is not about a place in the file, such as a line of `.env`.
    pub span: Option<Span>,
    pub position: Option<Position>,
    /// Stands beside the caret.
    pub label: Option<String>,
    /// What to try.
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With ANSI escapes.
    Colour,
}

/// The file has at least one error. `Display` is every diagnostic, rendered.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub struct Rejected {
    pub source_file: Source,
    pub diagnostics: Vec<Diagnostic>,
}

impl Rejected {
    pub fn render(&self, style: Style) -> String {
        render_all(&self.diagnostics, &self.source_file, style)
    }

    /// The first error as `file:line:column: message`, for a log line or a health report.
    pub fn summary(&self) -> String {
        let error = self.diagnostics.iter().find(|one| one.severity == Severity::Error);
        error.map_or_else(String::new, |error| error.at(&self.source_file.path, ""))
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain))
    }
}

/// All of them, with an empty line between two.
pub fn render_all(diagnostics: &[Diagnostic], source: &Source, style: Style) -> String {
    diagnostics.iter().map(|one| one.render(source, style)).collect::<Vec<_>>().join("\n\n")
}

impl Diagnostic {
    fn new(severity: Severity, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { severity, message, span: None, position: None, label: None, hint: None }
    }

    pub(crate) fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = Some(label.into());
        self
    }

    pub(crate) fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn maybe_hint(&mut self, hint: Option<String>) -> &mut Self {
        self.hint = hint.or(self.hint.take());
        self
    }

    /// As one line, without anything of the file's text: `file:line:column: error: message (hint)`.
    pub fn line(&self, path: &Path) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
        format!("{}{hint}", self.at(path, &format!("{}: ", self.severity.name())))
    }

    fn at(&self, path: &Path, severity: &str) -> String {
        match self.position {
            Some(Position { line, column }) => {
                format!("{}:{line}:{column}: {severity}{}", path.display(), self.message)
            }
            None => format!("{severity}{}", self.message),
        }
    }

    /// The message, the place with its line and a caret, and the hint; no line break at the end.
    pub fn render(&self, source: &Source, style: Style) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let title = level.primary_title(self.message.as_str());
        let path = source.path.to_string_lossy();
        let (shown, caret);
        let group = match (&self.span, self.position) {
            (Some(span), Some(position)) => {
                let (line, part) = one_line(&source.text, span);
                if line.len() > MAX_SHOWN_LINE {
                    let origin = Origin::path(path.as_ref()).line(position.line).char_column(position.column);
                    return self.with_hint(render(title.element(origin), style));
                }
                (shown, caret) = hidden::without_secrets(source, &line, &part);
                let mut mark = AnnotationKind::Primary.span(caret);
                if let Some(label) = &self.label {
                    mark = mark.label(label.as_str());
                }
                let snippet = Snippet::source(shown.as_str()).line_start(position.line).path(path.as_ref());
                title.element(snippet.annotation(mark))
            }
            _ => Group::with_title(title),
        };
        self.with_hint(render(group, style))
    }

    fn with_hint(&self, mut text: String) -> String {
        if let Some(hint) = &self.hint {
            if self.span.is_some() {
                let gutter = self.position.map_or(1, |position| position.line.to_string().len());
                text.push_str(&format!("\n{:gutter$} |", ""));
            }
            text.push_str("\nhint: ");
            text.push_str(hint);
        }
        text
    }
}

fn render(group: Group<'_>, style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Colour => Renderer::styled(),
    };
    renderer.render(&[group])
}

/// The line a span starts in, and the part of the span that lies in it, in bytes of the line.
fn one_line(text: &str, span: &Span) -> (Span, Span) {
    let start = floor(text, span.start);
    let end = floor(text, span.end.max(start));
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let line = text[line_start..line_end].trim_end_matches('\r');
    let line_end = line_start + line.len();
    let from = (start - line_start).min(line.len());
    let to = end.min(line_end).saturating_sub(line_start).clamp(from, line.len());
    // a caret needs something to stand under
    let to = if to == from { line[from..].chars().next().map_or(from, |c| from + c.len_utf8()) } else { to };
    (line_start..line_end, from..to)
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Gathers diagnostics about one source.
pub(crate) struct Report<'a> {
    pub(crate) source: &'a Source,
    line_starts: Vec<usize>,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    left_out: usize,
    overflow: Diagnostic,
}

impl<'a> Report<'a> {
    pub(crate) fn new(source: &'a Source) -> Self {
        let breaks = source.text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(breaks).collect();
        let overflow = Diagnostic::new(Severity::Note, "");
        Self { source, line_starts, diagnostics: Vec::new(), errors: 0, left_out: 0, overflow }
    }

    pub(crate) fn error(&mut self, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, Some(span), message.into())
    }

    pub(crate) fn warning(&mut self, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, Some(span), message.into())
    }

    pub(crate) fn note(&mut self, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Note, Some(span), message.into())
    }

    /// About the file as a whole.
    pub(crate) fn general_error(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, None, message.into())
    }

    /// About something else than a place in this file.
    pub(crate) fn general_warning(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, None, message.into())
    }

    fn add(&mut self, severity: Severity, span: Option<&Span>, message: String) -> &mut Diagnostic {
        self.errors += usize::from(severity == Severity::Error);
        let room = match severity {
            // a flood of warnings must not hide the error that follows
            Severity::Error => MAX_DIAGNOSTICS,
            Severity::Warning | Severity::Note => MAX_DIAGNOSTICS / 2,
        };
        if self.diagnostics.len() >= room {
            self.left_out += 1;
            return &mut self.overflow;
        }
        let mut diagnostic = Diagnostic::new(severity, message);
        diagnostic.position = span.map(|span| self.position(span.start));
        diagnostic.span = span.cloned();
        self.diagnostics.push(diagnostic);
        let last = self.diagnostics.len() - 1;
        &mut self.diagnostics[last]
    }

    pub(crate) fn position(&self, at: usize) -> Position {
        let at = floor(&self.source.text, at);
        let line = self.line_starts.partition_point(|&start| start <= at).max(1);
        let column = self.source.text[self.line_starts[line - 1]..at].chars().count() + 1;
        Position { line, column }
    }

    /// `file:line:column`
    pub(crate) fn place(&self, at: usize) -> String {
        let Position { line, column } = self.position(at);
        format!("{}:{line}:{column}", self.source.path.display())
    }

    /// The file by its name alone, and the line: for whoever is to know nothing of this machine.
    pub(crate) fn line(&self, at: usize) -> String {
        let name = self.source.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}:{}", self.position(at).line)
    }

    /// The source at a place.
    pub(crate) fn text_of(&self, span: &Span) -> &'a str {
        self.source.text.get(span.clone()).unwrap_or_default()
    }

    /// Nothing more will be shown: no need to look for hints.
    pub(crate) fn is_full(&self) -> bool {
        self.diagnostics.len() >= MAX_DIAGNOSTICS
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// In the order of the file; the order of finding otherwise.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|one| one.span.as_ref().map_or(usize::MAX, |span| span.start));
        if self.left_out > 0 {
            let message = format!("{} further diagnostics are not shown", self.left_out);
            self.diagnostics.push(Diagnostic::new(Severity::Note, message));
        }
        self.diagnostics
    }

    pub(crate) fn reject(self) -> Rejected {
        Rejected { source_file: self.source.clone(), diagnostics: self.finish() }
    }
}

/// Text of the file inside a message: in backticks, without control characters, of bounded length.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 80;
    let shown: String = text
        .chars()
        .take(MAX)
        .flat_map(|c| {
            let escaped: Box<dyn Iterator<Item = char>> =
                if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) };
            escaped
        })
        .collect();
    let more = if text.chars().nth(MAX).is_some() { "…" } else { "" };
    format!("`{shown}{more}`")
}

/// "did you mean …?" where one of the names is near enough.
pub(crate) fn did_you_mean<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    nearest(word, names).map(|name| format!("did you mean {}?", quote(name)))
}

pub(crate) fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // the distance is quadratic in the length, and long words are no typing mistakes
    if word.len() > 64 {
        return None;
    }
    let folded = fold(word);
    names
        .into_iter()
        .filter(|name| name.len() <= 64)
        .map(|name| (strsim::damerau_levenshtein(&folded, &fold(name)), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn fold(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}
