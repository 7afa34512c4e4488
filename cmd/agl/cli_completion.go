package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

func (c *completionCommand) describe(out *console.Console, app *kong.Application) error {
	script := bashCompletion(app.Node)
	switch c.Shell {
	case "zsh":
		script = "autoload -U +X bashcompinit && bashcompinit\n" + script
	case "fish":
		script = fishCompletion(app.Node)
	}
	return out.Printf("%s", script)
}

// flagsOf are the visible flags of a command, those of its parents included.
func flagsOf(n *kong.Node) (list []*kong.Flag) {
	for _, group := range n.AllFlags(true) {
		list = append(list, group...)
	}
	return list
}

// valuesOf are the values that a flag or an argument allows; none if any is allowed.
func valuesOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return slices.DeleteFunc(v.EnumSlice(), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// bashCompletion completes commands, flags and the values of flags that allow only
// some; files otherwise, such as for the values of other flags and after --. The paths of the commands are each between bars.
func bashCompletion(root *kong.Node) string {
	var words, values, paths strings.Builder
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		var list []string
		for _, child := range n.Children {
			list = append(list, child.Name)
			below := strings.TrimSpace(path + " " + child.Name)
			fmt.Fprintf(&paths, "|%s|", below)
			walk(child, below)
		}
		for _, argument := range n.Positional {
			list = append(list, valuesOf(argument)...)
		}
		for _, flag := range flagsOf(n) {
			list = append(list, "--"+flag.Name)
			if !flag.IsBool() {
				fmt.Fprintf(&values, "    '%s --%s') words='%s' ;;\n", path, flag.Name, strings.Join(valuesOf(flag.Value), " "))
			}
		}
		fmt.Fprintf(&words, "    '%s') words='%s' ;;\n", path, strings.Join(list, " "))
	}
	walk(root, "")
	return `_agl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path= words= before= i next
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [ "${COMP_WORDS[i]}" = -- ] && return
    next="${path:+$path }${COMP_WORDS[i]}"
    case " $_agl_paths " in *"|$next|"*) path="$next" ;; esac
  done
  # Bash splits --flag=value in three, zsh does not.
  case "$cur" in --*=*) prev="${cur%%=*}" before="${cur%%=*}=" cur="${cur#*=}" ;; esac
  if [ "$cur" = = ]; then cur=; elif [ "$prev" = = ]; then prev="${COMP_WORDS[COMP_CWORD-2]}"; fi
  case "$path $prev" in
` + values.String() + `    *)
  [ -z "$before" ] || return
  case "$path" in
` + words.String() + `  esac ;;
  esac
  COMPREPLY=($(compgen -P "$before" -W "$words" -- "$cur"))
}
_agl_paths='` + paths.String() + `'
complete -o default -F _agl ` + programName() + `
`
}

// fishAt defines __agl_at, which succeeds if the command that is being typed is the one that its arguments name, as in __agl_at db export.
const fishAt = `function __agl_at
  set -l path
  set -l words (commandline -opc)
  set -e words[1]
  for word in $words
    test "$word" = --; and return 1
    contains -- (string join -- ' ' $path $word) $__agl_paths; and set -a path $word
  end
  test "$path" = "$argv"
end
`

// fishCompletion completes the same as bashCompletion, and shows the help of commands and flags.
func fishCompletion(root *kong.Node) string {
	var lines, paths strings.Builder
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		here := "complete -c " + programName() + " -n " + quote(strings.TrimSpace("__agl_at "+path))
		for _, child := range n.Children {
			below := strings.TrimSpace(path + " " + child.Name)
			fmt.Fprintf(&lines, "%s -a %s -d %s\n", here, child.Name, quote(child.Help))
			fmt.Fprintf(&paths, " %s", quote(below))
			walk(child, below)
		}
		for _, argument := range n.Positional {
			if allowed := valuesOf(argument); len(allowed) > 0 {
				fmt.Fprintf(&lines, "%s -a %s -d %s\n", here, quote(strings.Join(allowed, " ")), quote(argument.Help))
			}
		}
		for _, flag := range flagsOf(n) {
			fmt.Fprintf(&lines, "%s -l %s -d %s", here, flag.Name, quote(flag.Help))
			if allowed := valuesOf(flag.Value); len(allowed) > 0 {
				fmt.Fprintf(&lines, " -x -a %s", quote(strings.Join(allowed, " ")))
			} else if !flag.IsBool() {
				lines.WriteString(" -r")
			}
			lines.WriteByte('\n')
		}
	}
	walk(root, "")
	return "set -g __agl_paths" + paths.String() + "\n" + fishAt + lines.String()
}
