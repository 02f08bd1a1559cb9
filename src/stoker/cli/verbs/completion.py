"""`stoker completion`: prints the completion script of a shell."""

from __future__ import annotations

import sys

from stoker.cli.arguments import Args, arg

SUMMARY = """\
Print a script that lets your shell complete verbs, options, and the ids and names of jobs. Let your
shell read it when it starts."""
EXAMPLES = """\
  stoker completion bash >> ~/.bashrc                            bash
  stoker completion zsh > "${fpath[1]}/_stoker"                  zsh
  stoker completion fish > ~/.config/fish/completions/stoker.fish   fish
"""

_BASH = """\
_stoker() {
    local word meaning
    COMPREPLY=()
    while IFS=$'\\t' read -r word meaning; do
        COMPREPLY+=("$word")
        [[ $word == *= ]] && compopt -o nospace
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
}
complete -o default -o nosort -F _stoker stoker 2> /dev/null || complete -o default -F _stoker stoker
"""
_ZSH = """\
#compdef stoker
_stoker() {
    local line
    local -a spaced joined
    for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}"; do
        [[ -z $line ]] && continue
        line="${${line//:/\\\\:}/$'\\t'/:}"
        if [[ ${line%%:*} == *= ]]; then joined+=("$line"); else spaced+=("$line"); fi
    done
    (( $#spaced )) && _describe -V stoker spaced
    (( $#joined )) && _describe -V stoker joined -S ''
    (( $#spaced + $#joined )) || _files
}
if [[ $funcstack[1] == _stoker ]]; then _stoker "$@"; else compdef _stoker stoker; fi
"""
_FISH = """\
function __stoker_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete -- $words[2..-1] 2> /dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c stoker -f -k -a '(__stoker_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

ARGUMENTS = (arg("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish"),)


def run(args: Args) -> int:
    """Print the script."""
    sys.stdout.write(_SCRIPTS[args.shell])
    return 0
