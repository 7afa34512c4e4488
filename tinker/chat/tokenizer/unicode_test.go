package tokenizer

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// The classes of every character and NFC are those of the reference, whatever version of Unicode Go has.
func TestUnicode(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/unicode.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Classes [][2]rune         `json:"classes"` // where the classes change, and the classes from there on
		NFC     map[string]string `json:"nfc"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	golden.Classes = append(golden.Classes, [2]rune{utf8.MaxRune + 1})
	for i, run := range golden.Classes[:len(golden.Classes)-1] {
		for c := run[0]; c < golden.Classes[i+1][0]; c++ {
			if got := classTable()[c]; got != charClass(run[1]) {
				t.Errorf("%U has the classes %b, want %b", c, got, run[1])
			}
		}
	}
	for text, want := range golden.NFC {
		if got := nfc(text); got != want {
			t.Errorf("NFC of %+q is %+q, want %+q", text, got, want)
		}
	}
}

// NFC sorts and keeps any number of marks.
func TestNFCOfManyMarks(t *testing.T) {
	t.Parallel()
	low, high := strings.Repeat("\u0334", 40), strings.Repeat("\u0345", 40)
	if got := nfc("a" + high + low + "\u0301"); got != "\u00e1"+low+high {
		t.Errorf("got %+q", got)
	}
}
