package console

import "testing"

func TestRedactJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, doc, want string }{
		{"bytes are kept", `{"a": 1.0, "b":[1e400,"x"]}`, `{"a": 1.0, "b":[1e400,"x"]}`},
		{"key", `{"api_key":"k","a":1}`, `{"api_key":"redacted","a":1}`},
		{"nested", `[{"x":{"Api-Key" : "k"}}]`, `[{"x":{"Api-Key" : "redacted"}}]`},
		{"attribute", `{"llm.request.headers.authorization":"Bearer k"}`, `{"llm.request.headers.authorization":"redacted"}`},
		{"several values", `{"authorization":["a","b"],"api_key":{"k":1}}`, `{"authorization":"redacted","api_key":"redacted"}`},
		{"nothing secret", `{"api_key":null,"api-key":"","apiKey":"env:KEY"}`, `{"api_key":null,"api-key":"","apiKey":"env:KEY"}`},
		{"not UTF-8", "{\"api_key\":\"\xff\"}", `{"api_key":"redacted"}`},
		{"twice", `{"api_key":"a","api_key":"b"}`, `{"api_key":"redacted","api_key":"redacted"}`},
		{"value that is a name", `{"name":"api_key","value":"shown"}`, `{"name":"api_key","value":"shown"}`},
		{"address", `{"endpoint":"http://u:p@h/v1","base_url":"http://h"}`, `{"endpoint":"http://u:xxxxx@h/v1","base_url":"http://h"}`},
		{"query", `{"endpoint":"http://h/v1?key=s3cret"}`, `{"endpoint":"http://h/v1?key=xxxxx"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := RedactJSON([]byte(tc.doc))
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v\nwant %s", got, err, tc.want)
			}
		})
	}
}
