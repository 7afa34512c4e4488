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
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path= words= i next
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [ "${COMP_WORDS[i]}" = -- ] && return
    next="${path:+$path }${COMP_WORDS[i]}"
    case " $_agl_paths " in *"|$next|"*) path="$next" ;; esac
  done
  # Bash splits --flag=value in three.
  if [ "$cur" = = ]; then cur=; elif [ "$prev" = = ]; then prev="${COMP_WORDS[COMP_CWORD-2]}"; fi
  case "$path $prev" in
` + values.String() + `    *)
  case "$path" in
` + words.String() + `  esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
_agl_paths='` + paths.String() + `'
complete -o default -F _agl agl
`
}

func fishCompletion(root *kong.Node) string {
	var b strings.Builder
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	var walk func(n *kong.Node, seen string)
	walk = func(n *kong.Node, seen string) {
		condition := strings.TrimPrefix(seen, "; and ")
		var names []string
		for _, child := range n.Children {
			names = append(names, child.Name)
		}
		for _, child := range n.Children {
			fmt.Fprintf(&b, "complete -c agl -n %s -a %s -d %s\n",
				quote(strings.TrimPrefix(seen+"; and not __fish_seen_subcommand_from "+strings.Join(names, " "), "; and ")), child.Name, quote(child.Help))
			walk(child, seen+"; and __fish_seen_subcommand_from "+child.Name)
		}
		if condition == "" {
			return
		}
		for _, flag := range n.Flags {
			fmt.Fprintf(&b, "complete -c agl -n %s -l %s -d %s", quote(condition), flag.Name, quote(flag.Help))
			if allowed := valuesOf(flag.Value); len(allowed) > 0 {
				fmt.Fprintf(&b, " -x -a %s", quote(strings.Join(allowed, " ")))
			} else if !flag.IsBool() {
				b.WriteString(" -r")
			}
			b.WriteByte('\n')
		}
	}
	walk(root, "")
	return b.String()
}
