package markdown

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

// HTML renders the Markdown of reports: headings, paragraphs, tables, lists, code
// blocks, and code, bold text and links in a line. picture returns what stands for an
// image, as HTML. Everything else is text.
func HTML(text string, picture func(title, path string) string) string {
	r := &renderer{lines: strings.Split(text, "\n"), picture: picture}
	for r.at < len(r.lines) {
		r.block()
	}
	return r.out.String()
}

type renderer struct {
	lines   []string
	at      int
	picture func(title, path string) string
	out     strings.Builder
}

var (
	heading = regexp.MustCompile(`^(#{1,6}) (.*)$`)
	image   = regexp.MustCompile(`^!\[(.*)\]\((.*)\)$`)
	fence   = regexp.MustCompile("^(```+)[a-z]*$")
	// inline matches code, bold text and links, in a text that is escaped already.
	inline = regexp.MustCompile("`([^`]+)`" + `|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)`)
)

// block renders the block that begins in the current line.
func (r *renderer) block() {
	line := r.lines[r.at]
	switch {
	case line == "":
		r.at++
	case heading.MatchString(line):
		m := heading.FindStringSubmatch(line)
		fmt.Fprintf(&r.out, "<h%d>%s</h%d>\n", len(m[1]), span(m[2]), len(m[1]))
		r.at++
	case image.MatchString(line):
		m := image.FindStringSubmatch(line)
		r.out.WriteString(r.picture(m[1], m[2]))
		r.at++
	case fence.MatchString(line):
		end := fence.FindStringSubmatch(line)[1]
		r.at++
		code := r.take(func(l string) bool { return l != end })
		r.at++
		r.code(code)
	case strings.HasPrefix(line, "    "):
		code := r.take(func(l string) bool { return strings.HasPrefix(l, "    ") })
		for i := range code {
			code[i] = code[i][4:]
		}
		r.code(code)
	case strings.HasPrefix(line, "|"):
		r.table(r.take(func(l string) bool { return strings.HasPrefix(l, "|") }))
	case strings.HasPrefix(line, "- "):
		r.out.WriteString("<ul>\n")
		for _, item := range r.take(func(l string) bool { return strings.HasPrefix(l, "- ") }) {
			fmt.Fprintf(&r.out, "<li>%s</li>\n", span(item[2:]))
		}
		r.out.WriteString("</ul>\n")
	default:
		text := r.take(func(l string) bool { return l != "" && !heading.MatchString(l) && !strings.HasPrefix(l, "|") })
		fmt.Fprintf(&r.out, "<p>%s</p>\n", span(strings.Join(text, "\n")))
	}
}

// take returns the lines from the current one on for which more is true.
func (r *renderer) take(more func(line string) bool) (lines []string) {
	for r.at < len(r.lines) && more(r.lines[r.at]) {
		lines = append(lines, r.lines[r.at])
		r.at++
	}
	return lines
}

func (r *renderer) code(lines []string) {
	fmt.Fprintf(&r.out, "<pre>%s</pre>\n", html.EscapeString(strings.Join(lines, "\n")))
}

// table renders a table whose second line separates the head from the body.
func (r *renderer) table(lines []string) {
	r.out.WriteString("<table>\n")
	for i, line := range lines {
		tag := "td"
		switch i {
		case 0:
			tag = "th"
		case 1:
			continue
		}
		if i == 0 && strings.Trim(line, "| ") == "" {
			continue // a table without a head
		}
		r.out.WriteString("<tr>")
		for _, cell := range cells(line) {
			fmt.Fprintf(&r.out, "<%[1]s>%[2]s</%[1]s>", tag, span(cell))
		}
		r.out.WriteString("</tr>\n")
	}
	r.out.WriteString("</table>\n")
}

// cells splits a row at the bars that are not escaped.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(line, `\|`, bar)
	parts := strings.Split(strings.Trim(line, "|"), "|")
	for i := range parts {
		parts[i] = strings.ReplaceAll(strings.TrimSpace(parts[i]), bar, "|")
	}
	return parts
}

// span renders a text within a block.
func span(text string) string {
	return inline.ReplaceAllStringFunc(html.EscapeString(text), func(found string) string {
		m := inline.FindStringSubmatch(found)
		switch {
		case m[1] != "":
			return "<code>" + m[1] + "</code>"
		case m[2] != "":
			return "<b>" + m[2] + "</b>"
		default:
			return `<a href="` + m[4] + `">` + m[3] + "</a>"
		}
	})
}
