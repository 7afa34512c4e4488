package client_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestTokenFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func(token string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("first\n")
		var sent string
		var logged bytes.Buffer
		c, err := client.New(client.Config{
			URL: "http://store", TokenFile: path, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				sent = r.Header.Get("Authorization")
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{}`))}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string) {
			t.Helper()
			if err := c.Health(t.Context()); err != nil || sent != want {
				t.Errorf("sent %q, %v; want %q", sent, err, want)
			}
		}
		expect("Bearer first")
		write("second")
		expect("Bearer first")
		time.Sleep(10 * time.Second)
		expect("Bearer second")
		for _, broken := range []string{"", "two\nlines", "\n"} {
			write(broken)
			time.Sleep(10 * time.Second)
			expect("Bearer second")
		}
		if n := strings.Count(logged.String(), "cannot be read"); n != 1 {
			t.Errorf("logged %d times, want once: %s", n, logged.String())
		}
		write("third\r\n")
		time.Sleep(10 * time.Second)
		expect("Bearer third")
	})
}

// A request that is refused because its token was replaced and revoked, such as a long poll that began before, is sent again with the
// new one. One that is refused with the file's token is not.
func TestTokenReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	good, sent := "Bearer new", []string{}
	c, err := client.New(client.Config{URL: "http://store", TokenFile: path, Transport: transport(func(r *http.Request) (*http.Response, error) {
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`[]`))}
		if sent = append(sent, r.Header.Get("Authorization")); sent[len(sent)-1] != good {
			answer.StatusCode = http.StatusUnauthorized
		}
		return answer, os.WriteFile(path, []byte("new"), 0o600)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil || !slices.Equal(sent, []string{"Bearer old", "Bearer new"}) {
		t.Errorf("sent %q: %v", sent, err)
	}
	good, sent = "Bearer newer", nil
	if _, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); !errors.Is(err, agl.ErrUnauthorized) || !slices.Equal(sent, []string{"Bearer new"}) {
		t.Errorf("sent %q: %v", sent, err)
	}
}

// A connection outlives the certificate that was shown in it: a refusal that closes it is followed by a try in a new one, which shows
// what the file has by now. A refusal in a connection that goes on is one of the certificate itself.
func TestCertificateReplaced(t *testing.T) {
	t.Parallel()
	shown := &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }}
	for name, c := range map[string]struct {
		outdated string
		tries    int
	}{"an outdated one": {"outdated", 2}, "another refusal, which ends the connection of a long request": {"", 1}} {
		tries := 0
		store, err := client.New(client.Config{URL: "https://store", TLS: shown, Transport: transport(func(*http.Request) (*http.Response, error) {
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`[]`))}
			if tries++; tries == 1 {
				answer.StatusCode, answer.Close = http.StatusUnauthorized, true
				answer.Header.Set("Agl-Certificate", c.outdated)
			}
			return answer, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); tries != c.tries || (err == nil) != (c.tries > 1) {
			t.Errorf("%s: %d tries, want %d: %v", name, tries, c.tries, err)
		}
	}
}

// A stream outlives the token with which it was opened: it goes on with that of the file.
func TestTokenReplacedInStream(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	const refused = "event: error\ndata: {\"detail\":\"the key k is revoked\",\"error_type\":\"PermissionError\",\"code\":\"unauthorized\"}\n\n"
	event := func(id string) string {
		return "id: " + id + "\nevent: queue\ndata: {\"id\":\"" + id + "\",\"kind\":\"queue\",\"status\":\"closed\"}\n\n"
	}
	var sent []string
	c, err := client.New(client.Config{URL: "http://store", TokenFile: path, Transport: transport(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("Authorization")+" after "+r.Header.Get("Last-Event-ID"))
		answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(event("1") + refused))}
		switch len(sent) {
		case 1:
			return answer, os.WriteFile(path, []byte("new"), 0o600)
		case 2: // the file is read again when its last token is refused
			answer.StatusCode, answer.Body = http.StatusUnauthorized, http.NoBody
		case 3:
			answer.Body = io.NopCloser(strings.NewReader(event("2") + refused))
		default:
			answer.StatusCode, answer.Body = http.StatusUnauthorized, http.NoBody
		}
		return answer, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for event, failure := range c.Events(t.Context(), agl.EventsParams{}) {
		if err = failure; err == nil {
			got = append(got, event.ID)
		}
	}
	if want := []string{"1", "2"}; !slices.Equal(got, want) || !errors.Is(err, agl.ErrUnauthorized) {
		t.Errorf("events %q, want %q; then %v, want that the key is refused", got, want, err)
	}
	if want := []string{"Bearer old after ", "Bearer old after 1", "Bearer new after 1", "Bearer new after 2"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

func TestTokenFileErrors(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, config := range map[string]client.Config{
		"no such file": {TokenFile: "gone"}, "is empty": {TokenFile: empty}, "give one of them": {TokenFile: empty, Token: "t"},
	} {
		config.URL = "http://store"
		if _, err := client.New(config); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
