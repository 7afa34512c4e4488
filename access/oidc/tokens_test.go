package oidc_test

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/access/oidc"
	"github.com/agl-go/agl/access/oidc/oidctest"
)

// Whoever makes a token of their own from a valid one is nobody: without a signature, signed with what
// everybody can read, with other claims, or with a key of their own that the header names.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ci": {"build"}}})
	tokens, err := oidc.NewTokens(oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: access.Grants{"build": access.Admin}}, Audience: oidctest.Audience})
	if err != nil {
		t.Fatal(err)
	}
	valid := provider.MachineToken(t, "ci")
	if _, err := tokens.Check(t.Context(), valid); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(valid, ".")
	header, payload, signature := parts[0], parts[1], parts[2]
	encode := base64.RawURLEncoding.EncodeToString
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := http.Get(provider.URL + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Body.Close()
	public, err := io.ReadAll(keys.Body)
	if err != nil {
		t.Fatal(err)
	}
	hs256 := func(secret []byte, head string) string {
		text := encode([]byte(head)) + "." + payload
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + encode(mac.Sum(nil))
	}
	forever := encode([]byte(strings.Replace(string(claims), `"exp":`, `"exp":99999999999,"was":`, 1)))
	for name, forged := range map[string]string{
		"no algorithm":              encode([]byte(`{"alg":"none"}`)) + "." + payload + ".",
		"no algorithm, signed":      encode([]byte(`{"alg":"None","typ":"JWT"}`)) + "." + payload + "." + signature,
		"no signature":              header + "." + payload + ".",
		"an empty key":              hs256(nil, `{"alg":"HS256"}`),
		"the public keys as secret": hs256(public, `{"alg":"HS256"}`),
		"a key in the header":       hs256([]byte("k"), `{"alg":"HS256","jwk":{"kty":"oct","k":"aw"}}`),
		"keys of another address":   hs256([]byte("k"), `{"alg":"RS256","jku":"http://127.0.0.1:1/keys","kid":"x"}`),
		"a path as key id":          hs256(nil, `{"alg":"HS256","kid":"../../dev/null"}`),
		"without an end":            header + "." + forever + "." + signature,
		"twice":                     valid + "." + signature,
	} {
		if caller, err := tokens.Check(t.Context(), forged); agl.ErrorCode(err) != agl.CodeUnauthorized {
			t.Errorf("%s: %+v, %v, want it refused", name, caller, err)
		}
	}
}

// While an issuer fails to send its keys, a valid token is neither accepted nor refused, however often it comes; a client
// that repeats it gets in once the keys are there.
func TestIssuerFailsToSendItsKeys(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(http.ResponseWriter){
		"503":             func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a page":          func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"a page with 200": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>sign in</html>") },
		"no keys":         func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") },
		"no answer":       func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"another host": func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ci": {"build"}}})
			keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fail(w) }))
			defer keys.Close()
			tokens, err := oidc.NewTokens(oidc.TokensConfig{
				Config:   oidc.Config{Issuer: provider.URL, Grants: access.Grants{"build": access.Train}},
				Audience: oidctest.Audience, KeysURL: keys.URL,
			})
			if err != nil {
				t.Fatal(err)
			}
			token := provider.MachineToken(t, "ci")
			for range 3 {
				if _, err := tokens.Check(t.Context(), token); agl.ErrorCode(err) != agl.CodeUnavailable || !strings.Contains(err.Error(), provider.URL) {
					t.Errorf("got %v, want it unavailable, with the issuer", err)
				}
			}
		})
	}
}

// The keys may be behind a redirect.
func TestKeysAreRedirected(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ci": {"build"}}})
	keys := httptest.NewServer(http.RedirectHandler(provider.URL+"/keys", http.StatusFound))
	defer keys.Close()
	tokens, err := oidc.NewTokens(oidc.TokensConfig{Config: oidc.Config{Issuer: provider.URL, Grants: access.Grants{"build": access.Train}}, Audience: oidctest.Audience, KeysURL: keys.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Check(t.Context(), provider.MachineToken(t, "ci")); err != nil {
		t.Error(err)
	}
}

// keysOf is a transport that answers with public keys by their ids, or with an error if there are none.
type keysOf map[string]ed25519.PublicKey

func (k *keysOf) RoundTrip(*http.Request) (*http.Response, error) {
	if *k == nil {
		return nil, errors.New("connection refused")
	}
	var set []string
	for id, key := range *k {
		set = append(set, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, id, base64.RawURLEncoding.EncodeToString(key)))
	}
	body := `{"keys":[` + strings.Join(set, ",") + `]}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A key that the issuer has withdrawn ends within minutes; while the issuer is away, its keys stay.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := keysOf{}
		tokens, err := oidc.NewTokens(oidc.TokensConfig{
			Config:   oidc.Config{Issuer: "http://issuer", Grants: access.Grants{"build": access.Train}, Transport: &keys},
			Audience: oidctest.Audience, KeysURL: "http://issuer/keys",
		})
		if err != nil {
			t.Fatal(err)
		}
		encode := base64.RawURLEncoding.EncodeToString
		token := func(id string) string {
			public, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				t.Fatal(err)
			}
			keys[id] = public
			text := encode(fmt.Appendf(nil, `{"alg":"EdDSA","kid":%q}`, id)) + "." + encode(fmt.Appendf(nil, `{"iss":"http://issuer","aud":%q,"sub":"ci","groups":["build"],"exp":%d}`, oidctest.Audience, time.Now().Add(time.Hour).Unix()))
			return text + "." + encode(ed25519.Sign(private, []byte(text)))
		}
		check := func(when, token string, want agl.Code) {
			t.Helper()
			if _, err := tokens.Check(t.Context(), token); want == "" && err != nil || want != "" && agl.ErrorCode(err) != want {
				t.Errorf("%s: %v, want %q", when, err, want)
			}
		}
		first := token("a")
		check("at first", first, "")
		second := token("b")
		check("a new key at once", second, agl.CodeUnauthorized)
		if _, err := tokens.Check(t.Context(), second); !strings.Contains(err.Error(), "less than a second ago") {
			t.Errorf("a new key at once: %v", err)
		}
		time.Sleep(time.Second)
		check("a new key after a second", second, "")
		known := keys
		keys = nil
		time.Sleep(10 * time.Minute)
		check("while the issuer is away", first, "")
		time.Sleep(10 * time.Minute)
		check("while it is away for longer", first, "")
		keys = known
		delete(keys, "a")
		time.Sleep(10 * time.Minute)
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := tokens.Check(left, first); err == nil {
			t.Error("a key that is withdrawn counts for a caller that leaves")
		}
		check("a key that is withdrawn", first, agl.CodeUnauthorized)
	})
}
