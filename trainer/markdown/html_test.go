package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHTML(t *testing.T) {
	t.Parallel()
	text := "# Run <1>\n\nThe **best** of `a<b`,\nsee [x.md](x.md).\n\n| | |\n|---|---|\n| a \\| b | **0.5** |\n\n" +
		"- one\n- <two>\n\n```text\n<pre>\n\n# no heading\n```\n\n    code & more\n\n![Loss](curves/loss.svg)\n"
	want := "<h1>Run &lt;1&gt;</h1>\n<p>The <b>best</b> of <code>a&lt;b</code>,\nsee <a href=\"x.md\">x.md</a>.</p>\n" +
		"<table>\n<tr><td>a | b</td><td><b>0.5</b></td></tr>\n</table>\n<ul>\n<li>one</li>\n<li>&lt;two&gt;</li>\n</ul>\n" +
		"<pre>&lt;pre&gt;\n\n# no heading</pre>\n<pre>code &amp; more</pre>\n[Loss: curves/loss.svg]"
	got := HTML(text, func(title, path string) string { return "[" + title + ": " + path + "]" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("HTML (-want +got):\n%s", diff)
	}
}
