package upstream

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// Secrets are hidden wherever the pieces of a reply begin and end; all else stays as it is.
func TestRedact(t *testing.T) {
	t.Parallel()
	const key = "sk-sk-s3cret"
	b := &backend{base: &url.URL{Host: "h", User: url.UserPassword("me", "pass-word"), RawQuery: "api-version=2024-10-21&Api_Key=q-s3cret&token=a%2Fs3cret%3D&token=another-one"}}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var text strings.Builder
		for range random.IntN(40) {
			part := []string{key, key[:random.IntN(len(key))], "pass-word", "bWU6cGFzcy13b3Jk", "q-s3cret", "a%2Fs3cret%3D", "a/s3cret=", "another-one", "2024-10-21", "x", "sk-", `{"error":"`}[random.IntN(12)]
			text.WriteString(part)
		}
		want := text.String()
		for _, s := range []string{key, "pass-word", "bWU6cGFzcy13b3Jk", "q-s3cret", "a%2Fs3cret%3D", "a/s3cret=", "another-one"} {
			want = strings.ReplaceAll(want, s, strings.Repeat("*", len(s)))
		}
		for name, in := range map[string]io.Reader{
			"at once": strings.NewReader(text.String()), "by bytes": iotest.OneByteReader(strings.NewReader(text.String())),
			"by halves": iotest.HalfReader(strings.NewReader(text.String())), "with the end": iotest.DataErrReader(strings.NewReader(text.String())),
		} {
			for _, size := range []int{1, 7, 4096} {
				res := &http.Response{Header: http.Header{"X-Said": {"with " + key}}, Body: io.NopCloser(in)}
				if size != 4096 {
					res.Body = io.NopCloser(io.MultiReader(strings.NewReader(text.String())))
				}
				if name != "at once" && size != 4096 {
					continue
				}
				b.redact(res, key)
				var got bytes.Buffer
				if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, res.Body, make([]byte, size)); err != nil || got.String() != want {
					t.Fatalf("seed %d, %s, %d bytes: %v\n%s\nwant\n%s", seed, name, size, err, got.String(), want)
				}
				if said := res.Header.Get("X-Said"); said != "with "+strings.Repeat("*", len(key)) {
					t.Errorf("the header is %q", said)
				}
			}
		}
	}
	for _, plain := range []string{"", "EMPTY"} {
		body := io.NopCloser(strings.NewReader("EMPTY"))
		res := &http.Response{Body: body}
		(&backend{base: &url.URL{}}).redact(res, plain)
		if res.Body != body {
			t.Errorf("a reply is read for the key %q", plain)
		}
	}
}

// An error of the body comes after what came before it.
func TestRedactBrokenBody(t *testing.T) {
	t.Parallel()
	res := &http.Response{Body: io.NopCloser(io.MultiReader(strings.NewReader("abc sk-sk"), iotest.ErrReader(io.ErrUnexpectedEOF)))}
	(&backend{base: &url.URL{}}).redact(res, "sk-sk-s3cret")
	if got, err := io.ReadAll(res.Body); err != io.ErrUnexpectedEOF || string(got) != "abc sk-sk" { //nolint:errorlint // as it is
		t.Errorf("%q, %v", got, err)
	}
}
