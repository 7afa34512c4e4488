package algorithms

import (
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
)

// TestPageAPO: prompts side by side, and candidates below those that they edit.
func TestPageAPO(t *testing.T) {
	t.Parallel()
	prompt := func(text string) []apo.NamedPrompt { return []apo.NamedPrompt{{Name: "main", Prompt: text}} }
	seed := apo.Candidate{ResourcesID: "rs-0", Prompts: prompt("be <short>"), Validation: agl.Some(0.25)}
	child := apo.Candidate{ResourcesID: "rs-1", Parent: "rs-0", Round: 1, Edited: "main", Critique: "say & why", Prompts: prompt("be clear"), Validation: agl.Some(0.75)}
	last := apo.Candidate{ResourcesID: "rs-2", Parent: "rs-1", Round: 2, Edited: "main", Prompts: prompt("be long"), Score: agl.Some(0.5)}
	page := pageAPO(apo.Report{Seed: seed, Best: child, Candidates: []apo.Candidate{seed, child, last}})
	at := 0
	for _, want := range []string{
		"<b>main, before</b>, mean reward 0.250<pre>be &lt;short&gt;</pre>", "<b>after</b>, mean reward 0.750<pre>be clear</pre>", "<p>3, each below",
		"<code>rs-0</code> round 0, mean reward 0.250</summary>", "<code>rs-1</code> round 1, mean reward 0.750 <b>the best</b></summary>",
		"<pre>say &amp; why</pre>", "<code>rs-2</code> round 2, mean reward 0.500 (tasks of one round)</summary>", "<pre>be long</pre>", "</details>\n</details>\n</details>",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("the page lacks %q after byte %d:\n%s", want, at, page)
		}
		at += i
	}
}
