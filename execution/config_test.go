package execution

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
)

func TestConfigFromEnv(t *testing.T) {
	t.Parallel()
	base := Config{Role: RoleBoth, Host: "localhost", Port: 4747}
	with := func(change func(*Config)) Config {
		c := base
		change(&c)
		return c
	}
	tests := map[string]struct {
		env  map[string]string
		want Config
		// complaint lists what the error must contain; empty means that there is none.
		complaint []string
	}{
		"nothing set": {want: base},
		"empty means not set": {
			env:  map[string]string{EnvRole: "", EnvServerPort: "", EnvManagedStore: ""},
			want: base,
		},
		"role":     {env: map[string]string{EnvRole: "runner"}, want: with(func(c *Config) { c.Role = RoleRunner })},
		"any case": {env: map[string]string{EnvRole: "Algorithm"}, want: with(func(c *Config) { c.Role = RoleAlgorithm })},
		"host and port": {
			env:  map[string]string{EnvServerHost: "10.0.0.1", EnvServerPort: "80"},
			want: with(func(c *Config) { c.Host, c.Port = "10.0.0.1", 80 }),
		},
		"free port":      {env: map[string]string{EnvServerPort: "0"}, want: with(func(c *Config) { c.Port, c.AnyPort = 0, true })},
		"managed 1":      {env: map[string]string{EnvManagedStore: "1"}, want: base},
		"managed YES":    {env: map[string]string{EnvManagedStore: "YES"}, want: base},
		"managed on":     {env: map[string]string{EnvManagedStore: "on"}, want: base},
		"managed True":   {env: map[string]string{EnvManagedStore: "True"}, want: base},
		"external 0":     {env: map[string]string{EnvManagedStore: "0"}, want: with(func(c *Config) { c.ExternalStore = true })},
		"external no":    {env: map[string]string{EnvManagedStore: "no"}, want: with(func(c *Config) { c.ExternalStore = true })},
		"external Off":   {env: map[string]string{EnvManagedStore: "Off"}, want: with(func(c *Config) { c.ExternalStore = true })},
		"external false": {env: map[string]string{EnvManagedStore: "false"}, want: with(func(c *Config) { c.ExternalStore = true })},
		"store URL": {
			env:  map[string]string{EnvStoreURL: "https://agl:t@host/prefix"},
			want: with(func(c *Config) { c.StoreURL, c.ExternalStore = "https://agl:t@host/prefix", true }),
		},
		"token": {env: map[string]string{EnvToken: "s3"}, want: with(func(c *Config) { c.Token = "s3" })},
		"child": {
			env: map[string]string{EnvRole: "runner", EnvProcess: "2", EnvLifeline: "3"},
			want: with(func(c *Config) {
				c.Role, c.Process, c.LifelineFD = RoleRunner, agl.Some(2), 3
			}),
		},
		"wrong role":     {env: map[string]string{EnvRole: "client"}, complaint: []string{EnvRole, `"client"`, "both, algorithm or runner"}},
		"port is a word": {env: map[string]string{EnvServerPort: "http"}, complaint: []string{EnvServerPort, `"http"`, "0 to 65535"}},
		"port too large": {env: map[string]string{EnvServerPort: "65536"}, complaint: []string{EnvServerPort, `"65536"`}},
		"port negative":  {env: map[string]string{EnvServerPort: "-1"}, complaint: []string{EnvServerPort, `"-1"`}},
		"managed maybe":  {env: map[string]string{EnvManagedStore: "maybe"}, complaint: []string{EnvManagedStore, `"maybe"`, "1, true, yes or on"}},
		"URL without scheme": {
			env:       map[string]string{EnvStoreURL: "localhost:4747"},
			complaint: []string{EnvStoreURL, `"localhost:4747"`, "http://"},
		},
		"URL with a password": {
			env:       map[string]string{EnvStoreURL: "ftp://agl:s3cret@host"},
			complaint: []string{EnvStoreURL, `"ftp://agl:xxxxx@host"`},
		},
		"password without scheme": {
			env:       map[string]string{EnvStoreURL: "agl:s3cret@host:4747"},
			complaint: []string{EnvStoreURL, `"(not a URL)"`},
		},
		"URL and managed": {
			env:       map[string]string{EnvStoreURL: "http://h", EnvManagedStore: "1"},
			complaint: []string{EnvManagedStore, `"1"`, EnvStoreURL},
		},
		"process is a word": {env: map[string]string{EnvProcess: "x"}, complaint: []string{EnvProcess, `"x"`}},
		"lifeline is stdin": {env: map[string]string{EnvLifeline: "0"}, complaint: []string{EnvLifeline, `"0"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ConfigFromEnv(func(key string) string { return test.env[key] })
			if len(test.complaint) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("config (-want +got):\n%s", diff)
				}
				return
			}
			if !errors.Is(err, agl.ErrInvalid) {
				t.Fatalf("error %v, want ErrInvalid", err)
			}
			for _, part := range test.complaint {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not contain %q", err, part)
				}
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config    Config
		complaint string
	}{
		"loopback needs no token":     {Config{Role: RoleBoth, Host: "127.0.0.1"}, ""},
		"IPv6 loopback":               {Config{Role: RoleBoth, Host: "::1"}, ""},
		"a runner listens nowhere":    {Config{Role: RoleRunner, Host: "10.0.0.1"}, ""},
		"external elsewhere":          {Config{Role: RoleBoth, Host: "10.0.0.1", ExternalStore: true}, ""},
		"open with a token":           {Config{Role: RoleBoth, Host: "0.0.0.0", Token: "t"}, ""},
		"open without one":            {Config{Role: RoleBoth, Host: "0.0.0.0"}, EnvToken},
		"a role must be given":        {Config{}, "ConfigFromEnv"},
		"a role must be one":          {Config{Role: "x"}, `"x"`},
		"a port must be one":          {Config{Role: RoleBoth, Port: 70000}, "70000"},
		"a free port to listen":       {Config{Role: RoleBoth, AnyPort: true}, ""},
		"a free port to reach":        {Config{Role: RoleRunner, AnyPort: true}, EnvServerPort},
		"a free port elsewhere":       {Config{Role: RoleBoth, AnyPort: true, ExternalStore: true}, EnvServerPort},
		"a store URL must be one":     {Config{Role: RoleBoth, StoreURL: "nowhere"}, `"nowhere"`},
		"a store URL has its secret":  {Config{Role: RoleBoth, StoreURL: "ftp://agl:s3cret@h"}, `"ftp://agl:xxxxx@h"`},
		"a store URL is external too": {Config{Role: RoleBoth, StoreURL: "http://h:1", Host: "0.0.0.0"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.config.withDefaults().validate()
			switch {
			case test.complaint == "" && err != nil:
				t.Error(err)
			case test.complaint != "" && (err == nil || !strings.Contains(err.Error(), test.complaint)):
				t.Errorf("error %v, want one with %q", err, test.complaint)
			}
		})
	}
}

func TestWorkersAreSharedOut(t *testing.T) {
	t.Parallel()
	if got, want := shareOf(3, 2, agl.Null[int]{}), []int{0, 1, 2}; !cmp.Equal(got, want) {
		t.Errorf("a process by itself runs %v, want %v", got, want)
	}
	seen := map[int]int{}
	for process := range 3 {
		for _, worker := range shareOf(7, 3, agl.Some(process)) {
			seen[worker]++
		}
	}
	want := map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("runs of each worker (-want +got):\n%s", diff)
	}
}
