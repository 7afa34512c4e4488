package algorithm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	const whole = "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"
	for _, tc := range []struct {
		name, before string
		from         int
		want         string
	}{
		{"new", "", 0, ""},
		{"from the start", whole, 0, ""},
		{"middle", whole, 3, "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n"},
		{"end", whole, 4, whole},
		{"beyond", whole, 9, whole},
		{"half a line", "{\"step\":0}\n{\"step\":1}\n{\"st", 3, "{\"step\":0}\n{\"step\":1}\n"},
		{"last line without its end", "{\"step\":0}\n{\"step\":1}", 3, "{\"step\":0}\n"},
		{"garbage", "{\"step\":0}\nhello\n{\"step\":1}\n", 3, "{\"step\":0}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "metrics.jsonl")
			if tc.before != "" {
				if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := openMetrics(path, tc.from)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Append(map[string]int{"step": 99}); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rest, ok := strings.CutPrefix(string(got), tc.want)
			if !ok || !strings.HasPrefix(rest, `{"step":99}`) || strings.Count(rest, "\n") != 1 {
				t.Errorf("got %q, want %q and a new line", got, tc.want)
			}
		})
	}
}
