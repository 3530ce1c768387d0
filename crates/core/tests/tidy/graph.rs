//! Rules of the import graph, read from the tokens of the sources: which folder may import which, where a
//! type's methods may stand, and that no two files import each other, directly or through others.
//!
//! An import is a `use` or a path in the code, resolved to the file that defines its target: through
//! re-exports, and through what an ancestor module has imported. Code that is only compiled for tests is left
//! out. A file may use its own ancestor modules, of which it is a part; that is no arrow in the graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Finding;

/// Folders of a crate, with the folders that each may import. Whatever lies beside a folder counts by its own
/// name.
pub struct Layers {
    pub krate: &'static str,
    pub allowed: &'static [(&'static str, &'static [&'static str])],
}

/// The gateway's layers, the lowest first (ARCHITECTURE.md).
pub const GATEWAY: Layers = Layers {
    krate: "gateway",
    allowed: &[
        ("base", &[]),
        ("http", &["base"]),
        ("upstream", &["base", "http"]),
        ("history", &["base"]),
        ("config", &["base", "http", "upstream"]),
        ("shared", &["base", "http", "upstream", "history", "config"]),
        ("proxy", &["base", "http", "upstream", "config", "shared"]),
        ("control", &["base", "http", "upstream", "history", "config", "shared"]),
        ("admin", &["base", "http", "upstream", "history", "config", "shared", "control"]),
        ("server", &["base", "http", "upstream", "history", "config", "shared", "proxy", "control", "admin"]),
    ],
};

/// A module's path from its crate's root.
type Path = Vec<String>;

/// A source file as the graph sees it.
#[derive(Default)]
struct File {
    path: String,
    module: Path,
    /// What names mean here that `use` has brought in, and what modules are declared.
    names: HashMap<String, Path>,
    /// Types that are defined here.
    types: BTreeSet<String>,
    /// Paths that are used, with their lines.
    uses: Vec<(usize, Path)>,
    /// Types that have an inherent `impl` here, with the lines.
    impls: Vec<(usize, Path)>,
}

impl File {
    /// The folder in which methods of this file's types may stand. That of a file beside the crate's root is
    /// its own.
    fn folder(&self) -> &[String] {
        let is_folder = self.path.ends_with("/mod.rs") || self.module.len() < 2;
        if is_folder { &self.module } else { &self.module[..self.module.len() - 1] }
    }
}

/// The files of one crate.
pub struct Graph {
    krate: String,
    files: Vec<File>,
    by_module: BTreeMap<Path, usize>,
}

impl Graph {
    /// Of a crate's sources: paths from the repository's root, and texts.
    pub fn new<'s>(krate: &str, sources: impl IntoIterator<Item = (&'s str, &'s str)>) -> Self {
        let src = format!("crates/{krate}/src/");
        let mut files = Vec::new();
        for (path, text) in sources {
            let Some(below) = path.strip_prefix(&src) else { continue };
            if is_test_file(below) {
                continue;
            }
            let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
            let mut file = File { path: path.into(), module: module_of(below), ..File::default() };
            let module = file.module.clone();
            // Names first: an import may stand below its use.
            read(&mut file, &module, tokens.clone());
            (file.uses, file.impls) = Default::default();
            read(&mut file, &module, tokens);
            files.push(file);
        }
        let by_module = files.iter().enumerate().map(|(at, file)| (file.module.clone(), at)).collect();
        Self { krate: krate.into(), files, by_module }
    }

    /// The file that defines what a path names, and the rest of the path: resolved through imports.
    fn resolve(&self, path: &[String], depth: usize) -> Option<(usize, Path)> {
        let (at, file) = (0..=path.len()).rev().find_map(|n| Some((n, *self.by_module.get(&path[..n])?)))?;
        let rest = &path[at..];
        let Some(name) = rest.first() else { return Some((file, Vec::new())) };
        if depth > 0
            && !self.files[file].types.contains(name)
            && let Some(target) = self.files[file].names.get(name)
        {
            let mut target = target.clone();
            target.extend_from_slice(&rest[1..]);
            if target != path {
                return self.resolve(&target, depth - 1);
            }
        }
        Some((file, rest.to_vec()))
    }

    /// Arrows from file to file, with the first line and the name that make each.
    fn arrows(&self) -> BTreeMap<(usize, usize), (usize, String)> {
        let mut arrows = BTreeMap::new();
        for (from, file) in self.files.iter().enumerate() {
            for (line, path) in &file.uses {
                let Some((to, rest)) = self.resolve(path, 8) else { continue };
                let is_ancestor = file.module.starts_with(&self.files[to].module);
                // The root declares the crate's modules and re-exports: nothing is defined there to depend
                // on.
                if to != from && !is_ancestor && !self.files[to].module.is_empty() {
                    arrows.entry((from, to)).or_insert((*line, rest.join("::")));
                }
            }
        }
        arrows
    }

    /// Files that import each other, directly or through others (Tarjan's strongly connected components).
    pub fn circles(&self) -> Vec<Finding> {
        let arrows = self.arrows();
        let mut next = vec![Vec::new(); self.files.len()];
        for (from, to) in arrows.keys().filter(|(from, _)| !self.files[*from].module.is_empty()) {
            next[*from].push(*to);
        }
        let mut tarjan = Tarjan::new(&next);
        for node in 0..next.len() {
            tarjan.visit(node);
        }
        let mut findings = Vec::new();
        for circle in tarjan.components.into_iter().filter(|component| component.len() > 1) {
            for ((from, to), (line, name)) in &arrows {
                if circle.contains(from) && circle.contains(to) {
                    let what = format!(
                        "in a circle of {} files: imports {name} from {}",
                        circle.len(),
                        self.files[*to].path
                    );
                    findings.push(Finding::new(&self.files[*from].path, *line, what));
                }
            }
        }
        findings
    }

    /// Imports from a folder that is not below.
    pub fn layers(&self, layers: &Layers) -> Vec<Finding> {
        let folder = |file: usize| self.files[file].module.first().map(String::as_str);
        let mut findings = Vec::new();
        for ((from, to), (line, name)) in self.arrows() {
            let (Some(here), Some(there)) = (folder(from), folder(to)) else { continue };
            let known = layers.allowed.iter().find(|(folder, _)| *folder == here);
            let is_allowed = here == there || known.is_some_and(|(_, below)| below.contains(&there));
            if !is_allowed {
                let what = format!("{here} must not import {there} ({name} of {})", self.files[to].path);
                findings.push(Finding::new(&self.files[from].path, line, what));
            }
        }
        findings
    }

    /// Inherent methods far from their type: outside the module that the type's file belongs to.
    pub fn foreign_impls(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            for (line, path) in &file.impls {
                let Some((home, rest)) = self.resolve(path, 8) else { continue };
                let is_found = rest.first().is_some_and(|name| self.files[home].types.contains(name));
                if is_found && home != at && !file.module.starts_with(self.files[home].folder()) {
                    let what =
                        format!("methods of {} stand outside {}", rest.join("::"), self.files[home].path);
                    findings.push(Finding::new(&file.path, *line, what));
                }
            }
        }
        findings
    }

    /// All three rules.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = self.circles();
        if self.krate == GATEWAY.krate {
            findings.extend(self.layers(&GATEWAY));
        }
        findings.extend(self.foreign_impls());
        findings
    }
}

/// Strongly connected components, depth first.
struct Tarjan<'g> {
    next: &'g [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    seen: usize,
    components: Vec<Vec<usize>>,
}

impl<'g> Tarjan<'g> {
    fn new(next: &'g [Vec<usize>]) -> Self {
        let n = next.len();
        Self {
            next,
            index: vec![None; n],
            low: vec![0; n],
            stack: Vec::new(),
            seen: 0,
            components: Vec::new(),
        }
    }

    fn visit(&mut self, node: usize) -> usize {
        if let Some(index) = self.index[node] {
            return if self.stack.contains(&node) { index } else { usize::MAX };
        }
        let index = self.seen;
        self.seen += 1;
        (self.index[node], self.low[node]) = (Some(index), index);
        self.stack.push(node);
        for to in &self.next[node] {
            let is_new = self.index[*to].is_none();
            let reached = self.visit(*to);
            let low = if is_new { self.low[*to] } else { reached };
            if self.stack.contains(to) {
                self.low[node] = self.low[node].min(low);
            }
        }
        if self.low[node] == index {
            let from = self.stack.iter().position(|on| *on == node).unwrap_or_default();
            self.components.push(self.stack.split_off(from));
        }
        index
    }
}

fn is_test_file(below: &str) -> bool {
    below.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

fn module_of(below: &str) -> Path {
    let mut parts: Path = below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod")) || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Notes what the tokens of `module` define, import and use.
fn read(file: &mut File, module: &[String], tokens: TokenStream) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            TokenTree::Punct(p) if p.as_char() == '#' => attribute(&tokens, at),
            TokenTree::Ident(word) if *word == "use" => import(file, module, &tokens, at),
            TokenTree::Ident(word) if *word == "mod" => inline_module(file, module, &tokens, at),
            TokenTree::Ident(word) if *word == "impl" => implementation(file, module, &tokens, at),
            TokenTree::Ident(word)
                if ["struct", "enum", "union", "trait", "type"].iter().any(|w| *word == w) =>
            {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && module == file.module
                {
                    file.types.insert(name.to_string());
                }
                at + 1
            }
            TokenTree::Ident(_) => path(file, module, &tokens, at),
            TokenTree::Group(group) => {
                read(file, module, group.stream());
                at + 1
            }
            _ => at + 1,
        };
    }
}

/// Skips what an attribute keeps for tests; returns where to go on.
fn attribute(tokens: &[TokenTree], at: usize) -> usize {
    let is_for_tests = matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
        if group.stream().to_string().replace(' ', "").starts_with("cfg(test"));
    if !is_for_tests {
        return at + 1;
    }
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(p) => p.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    (at + 2..tokens.len()).find(|at| is_end(&tokens[*at])).map_or(tokens.len(), |end| end + 1)
}

fn inline_module(file: &mut File, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { return at + 1 };
    let mut child = module.to_vec();
    child.push(name.to_string());
    if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
        read(file, &child, body.stream());
        return at + 3;
    }
    if module == file.module {
        file.names.insert(name.to_string(), child);
    }
    at + 2
}

/// Words of a path that begins at `at`, and where it ends.
fn words(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut words = Vec::new();
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        words.push(word.to_string());
        if !(colon(at + 1) && colon(at + 2)) {
            return (words, at + 1);
        }
        at += 3;
    }
    (words, at)
}

/// The same from the crate's root; `None`: of another crate, or a name that was not imported.
fn absolute(file: &File, module: &[String], words: &[String]) -> Option<Path> {
    let mut here = module.to_vec();
    let mut rest = words;
    match words.first()?.as_str() {
        "crate" => return Some(words[1..].to_vec()),
        "self" => rest = &rest[1..],
        "super" => {}
        first => {
            let mut path = file.names.get(first)?.clone();
            path.extend_from_slice(&words[1..]);
            return Some(path);
        }
    }
    while rest.first().is_some_and(|word| word == "super") {
        here.pop()?;
        rest = &rest[1..];
    }
    here.extend_from_slice(rest);
    Some(here)
}

fn import(file: &mut File, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
    let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
    let end = (at..tokens.len()).find(|at| is_end(&tokens[*at])).unwrap_or(tokens.len());
    let line = tokens[at].span().start().line;
    let mut leaves = Vec::new();
    tree(&tokens[at + 1..end], &[], &mut leaves);
    for (words, name) in leaves {
        let first = words.first().map(String::as_str).unwrap_or_default();
        // Beside what begins at the root: a path from a child module of this one.
        let target = absolute(file, module, &words)
            .or_else(|| file.names.contains_key(first).then(|| [module, &words].concat()));
        let Some(target) = target else { continue };
        if name != "*" && module == file.module {
            file.names.insert(name, target.clone());
        }
        file.uses.push((line, target));
    }
    end + 1
}

/// The paths of a `use`, with the names that they bring in.
fn tree(tokens: &[TokenTree], before: &[String], leaves: &mut Vec<(Vec<String>, String)>) {
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
        let (words, end) = words(part, 0);
        let mut whole = [before, &words].concat();
        match part.get(end) {
            Some(TokenTree::Group(group)) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                tree(&inner, &whole, leaves);
            }
            Some(TokenTree::Punct(p)) if p.as_char() == '*' => leaves.push((whole, "*".into())),
            Some(TokenTree::Ident(_)) if end > 0 && part.len() > end + 1 => {
                leaves.push((whole, part[end + 1].to_string()));
            }
            _ => {
                if whole.last().is_some_and(|word| word == "self") && whole.len() > 1 {
                    whole.pop();
                }
                let Some(name) = whole.last().cloned() else { continue };
                leaves.push((whole, name));
            }
        }
    }
}

/// A path in the code: of more than one word, or a name that was imported from a module (which the import has
/// noted).
fn path(file: &mut File, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
    let (words, end) = words(tokens, at);
    if words.len() > 1
        && let Some(target) = absolute(file, module, &words)
    {
        file.uses.push((tokens[at].span().start().line, target));
    }
    end.max(at + 1)
}

fn implementation(file: &mut File, module: &[String], tokens: &[TokenTree], at: usize) -> usize {
    let punct = |at: usize, c: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
    let mut from = at + 1;
    if punct(from, '<') {
        let mut depth = 0;
        while from < tokens.len() {
            depth += i32::from(punct(from, '<'));
            // The arrow of a function type closes nothing.
            depth -= i32::from(punct(from, '>') && !punct(from - 1, '-'));
            from += 1;
            if depth == 0 {
                break;
            }
        }
    }
    let is_body =
        |token: &TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
    let body = (from..tokens.len()).find(|at| is_body(&tokens[*at])).unwrap_or(tokens.len());
    let is_trait = tokens[from..body].iter().any(|token| matches!(token, TokenTree::Ident(w) if *w == "for"));
    let (words, _) = words(tokens, from);
    // In the head of a function, `impl` is a type.
    if !is_trait && !words.is_empty() && is_item(tokens, at) {
        let target = match absolute(file, module, &words) {
            Some(target) => target,
            None => [file.module.clone(), words].concat(),
        };
        file.impls.push((tokens[at].span().start().line, target));
    }
    at + 1
}

/// Whether what begins at `at` stands where items stand: at the beginning, or after another item or an
/// attribute.
fn is_item(tokens: &[TokenTree], at: usize) -> bool {
    match at.checked_sub(1).map(|before| &tokens[before]) {
        None => true,
        Some(TokenTree::Punct(p)) => p.as_char() == ';',
        Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Ident(word)) => *word == "unsafe",
        Some(TokenTree::Literal(_)) => false,
    }
}
