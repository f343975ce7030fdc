//! `vosti completions` and `vosti man`: made from the flags themselves, so they always match the command.

use super::Outcome;
use super::arguments::Vosti;
use super::output::print;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

/// `vosti completions`
#[derive(Args)]
pub struct Completions {
    /// The shell; for bash, run `source <(vosti completions bash)` in ~/.bashrc
    pub shell: Shell,
}

/// `vosti man`
#[derive(Args)]
pub struct Man {
    /// Where to write vosti.1 and a page for each command, such as ~/.local/share/man/man1
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

pub fn completions(arguments: &Completions) -> Result<Outcome> {
    print(&script(arguments.shell))?;
    Ok(Outcome::Done)
}

/// clap's script, which knows commands and flags. Where a model is wanted, bash, zsh and fish ask `vosti models --names`.
fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Vosti::command(), "vosti", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let each = |line: fn(&str) -> String| script.split_inclusive('\n').map(line).collect::<String>();
    match shell {
        Shell::Bash => script.replace(" -F _vosti ", " -F _vosti_or_models ") + BASH,
        Shell::Zsh => each(|line| {
            let wanted = ["'-m+", "'--model=", "'::model ", "':name "].iter().any(|begin| line.starts_with(begin));
            let line = if wanted { line.replace(":_default'", ":_vosti_models'") } else { line.into() };
            if line.starts_with("autoload ") { line + ZSH } else { line }
        }),
        Shell::Fish => {
            let flags = each(|line| match line.contains(" -s m -l model ") {
                true => line.replace(" -r\n", " -r -a \"(vosti models --names)\"\n"),
                false => line.into(),
            });
            flags + FISH
        }
        _ => script,
    }
}

/// bash splits a line at colons and expects the part of a name that follows the last one.
const BASH: &str = r#"
_vosti_or_models() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##*[[:space:]]}"
    local before="${line%"$word"}"
    before="${before%"${before##*[![:space:]]}"}"
    before="${before##*[[:space:]]}"
    case "$word" in
        --model=*) before=--model word="${word#--model=}" ;;
        -*) before= ;;
    esac
    case "$before" in
        -m | --model | pull | prepare) ;;
        *) _vosti "$@"; return ;;
    esac
    local cut="${word%"${word##*:}"}" name
    [[ "$COMP_WORDBREAKS" == *:* ]] || cut=
    COMPREPLY=()
    while IFS= read -r name; do
        [[ "$name" == "$word"* ]] && COMPREPLY+=("${name#"$cut"}")
    done < <("$1" models --names 2> /dev/null)
}
"#;

const ZSH: &str = r#"
_vosti_models() {
    local -a names
    names=(${(f)"$(_call_program models vosti models --names 2> /dev/null)"})
    _alternative 'models:model:compadd -a names' 'files:file:_files'
}
"#;

const FISH: &str = r#"complete -c vosti -n "__fish_vosti_using_subcommand pull" -f -a "(vosti models --names)"
complete -c vosti -n "__fish_vosti_using_subcommand prepare" -a "(vosti models --names)"
"#;

pub fn pages(arguments: &Man) -> Result<Outcome> {
    let folder = &arguments.folder;
    let cannot = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Vosti::command(), folder).with_context(cannot)?;
    Ok(Outcome::Done)
}
