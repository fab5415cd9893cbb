//! What a place in a Markdown text means: code, comments and quotations show tags without meaning them.

/// Reads the text before a place, character by character.
#[derive(Debug, Clone)]
pub(super) struct Context {
    previous: char,
    /// Only blanks and quotation marks `>` so far on this line.
    line_start: bool,
    block_quote: bool,
    /// Backticks or tildes just read.
    run: (char, usize),
    run_at_start: bool,
    code: Code,
    /// The closer of a quotation that was opened on this line.
    quote: Option<char>,
    comment: Option<Comment>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Code {
    None,
    /// An inline span, if its closer follows on this line. `word` while it could still be a fence in mid-line.
    Inline {
        length: usize,
        word: bool,
    },
    /// The line of an opening fence.
    Info {
        mark: char,
        length: usize,
    },
    Fence {
        mark: char,
        length: usize,
    },
    /// After a closing fence, until its line ends.
    Closing {
        mark: char,
        length: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Comment {
    dashes: usize,
}

/// A span that was opened before a place, and masks it if it is closed on the same line after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mask {
    Backticks(usize),
    Quote(char),
    /// A quotation mark that only counts directly around a tag, being an apostrophe elsewhere.
    Adjacent(char),
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            previous: '\n',
            line_start: true,
            block_quote: false,
            run: (' ', 0),
            run_at_start: false,
            code: Code::None,
            quote: None,
            comment: None,
        }
    }

    /// Ends a run of backticks if `next` does not belong to it.
    pub(super) fn settle(&mut self, next: char) {
        if self.run.1 > 0 && self.run.0 != next {
            let (mark, length) = std::mem::replace(&mut self.run, (' ', 0));
            self.end_run(mark, length);
        }
    }

    /// Whether a tag at this place is shown and not meant, whatever follows. Call [`Context::settle`] first.
    pub(super) fn is_protected(&self) -> bool {
        self.comment.is_some()
            || self.block_quote
            || self.previous == '\\'
            || matches!(self.code, Code::Info { .. } | Code::Fence { .. } | Code::Closing { .. })
    }

    pub(super) fn mask(&self) -> Option<Mask> {
        match (self.code, self.quote, self.previous) {
            (Code::Inline { length, .. }, _, _) => Some(Mask::Backticks(length)),
            (_, Some(close), _) => Some(Mask::Quote(close)),
            (_, _, '\'') => Some(Mask::Adjacent('\'')),
            (_, _, '‘') => Some(Mask::Adjacent('’')),
            _ => None,
        }
    }

    /// Only blanks before this place on its line.
    pub(super) fn at_line_start(&self) -> bool {
        self.line_start
    }

    pub(super) fn in_span(&self) -> bool {
        self.is_protected() || self.mask().is_some()
    }

    pub(super) fn open_comment(&mut self) {
        self.comment = Some(Comment { dashes: 0 });
    }

    /// A call or a tag was taken out at this place.
    pub(super) fn cut(&mut self) {
        self.line_start = false;
        self.previous = ' ';
        self.run = (' ', 0);
    }

    /// What was taken out at this place began its line: what follows does.
    pub(super) fn restart_line(&mut self) {
        self.line_start = true;
        self.previous = '\n';
    }

    /// The span that was open is over: closed, or found to have no closer.
    pub(super) fn end_span(&mut self) {
        self.cut();
        self.quote = None;
        self.code = Code::None;
    }

    pub(super) fn feed(&mut self, character: char) {
        self.settle(character);
        if let Some(comment) = self.comment {
            self.comment = match (character, comment.dashes) {
                ('-', dashes) => Some(Comment { dashes: dashes + 1 }),
                ('>', 2..) => None,
                _ => Some(Comment { dashes: 0 }),
            };
        } else {
            self.feed_text(character);
        }
        if character == '\n' {
            self.line_start = true;
            self.block_quote = false;
        } else if !character.is_whitespace() && character != '>' {
            self.line_start = false;
        }
        self.previous = character;
    }

    fn feed_text(&mut self, character: char) {
        match character {
            '\n' => return self.end_line(),
            '`' | '~' => {
                if self.run.1 == 0 {
                    self.run_at_start = self.line_start;
                }
                self.run = (character, self.run.1 + 1);
                return;
            }
            '>' if self.line_start && self.code == Code::None => self.block_quote = true,
            '"' if self.code == Code::None => {
                self.quote = if self.quote == Some('"') { None } else { self.quote.or(Some('"')) };
            }
            '“' if self.code == Code::None => self.quote = Some('”'),
            '”' if self.quote == Some('”') => self.quote = None,
            _ => {}
        }
        match &mut self.code {
            Code::Inline { word, .. } => {
                *word &= character.is_ascii_alphanumeric() || "_-+.\r".contains(character);
            }
            Code::Closing { mark, length } if !character.is_whitespace() => {
                self.code = Code::Fence { mark: *mark, length: *length };
            }
            _ => {}
        }
    }

    fn end_line(&mut self) {
        self.quote = None;
        self.code = match self.code {
            Code::Info { mark, length } => Code::Fence { mark, length },
            Code::Inline { length: length @ 3.., word: true } => Code::Fence { mark: '`', length },
            Code::Fence { mark, length } => Code::Fence { mark, length },
            Code::None | Code::Inline { .. } | Code::Closing { .. } => Code::None,
        };
    }

    fn end_run(&mut self, mark: char, length: usize) {
        self.code = match self.code {
            Code::None if length >= 3 && self.run_at_start => Code::Info { mark, length },
            Code::None if mark == '`' => Code::Inline { length, word: true },
            Code::Inline { length: open, .. } if mark == '`' && open == length => Code::None,
            Code::Inline { length, .. } => Code::Inline { length, word: false },
            Code::Info { mark: open, length: opened } if mark == '`' && open == '`' && opened == length => {
                Code::None
            }
            Code::Fence { mark: open, length: opened }
                if open == mark && length >= opened && self.run_at_start =>
            {
                Code::Closing { mark: open, length: opened }
            }
            Code::Closing { mark, length } => Code::Fence { mark, length },
            same => same,
        };
    }
}

/// Where a mask ends in the text after a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskEnd {
    /// The byte after the closer.
    Closed(usize),
    Open,
    /// The line goes on beyond what is known; go on looking at this byte.
    More(usize),
}

/// Characters of a line that are looked at for the end of a span.
const MAX_LOOK: usize = 4096;

/// Looks for the closer of `mask` from byte `from`, on the line that `start` is in; `ended` when no text follows.
pub(super) fn mask_end(text: &str, mask: Mask, start: usize, from: usize, ended: bool) -> MaskEnd {
    let mut at = from;
    while let Some(character) = text[at..].chars().next() {
        if at - start > MAX_LOOK || character == '\n' {
            return MaskEnd::Open;
        }
        let next = at + character.len_utf8();
        match mask {
            Mask::Adjacent(close) => {
                return if character == close { MaskEnd::Closed(next) } else { MaskEnd::Open };
            }
            Mask::Quote(close) if character == close => return MaskEnd::Closed(next),
            Mask::Backticks(length) if character == '`' => {
                let run = text[at..].bytes().take_while(|&byte| byte == b'`').count();
                if at + run == text.len() && !ended {
                    return MaskEnd::More(at);
                }
                if run == length {
                    return MaskEnd::Closed(at + run);
                }
                at += run;
            }
            _ => at = next,
        }
    }
    if ended { MaskEnd::Open } else { MaskEnd::More(at) }
}
