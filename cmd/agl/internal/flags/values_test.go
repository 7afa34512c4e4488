package flags

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "10m": 10 * time.Minute, "0.5s": time.Second / 2,
	} {
		var s Duration
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, %v, want %v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "0d", "-1d", "1dd", "1d-1h", "1h1d", "1e300d", "NaNd", "seven", "106751d100h"} {
		if err := new(Duration).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	const want = `got "99999999d", must be a time such as 7d, 36h or 10m, longer than 0 and at most 106751d`
	if err := new(Duration).UnmarshalText([]byte("99999999d")); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1": 1, "20GB": 20e9, "20 GB": 20e9, "512MiB": 512 << 20, "1KiB": 1024, "1kB": 1000, "3TB": 3e12, "5B": 5,
	} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || int64(s) != want {
			t.Errorf("%s is %d, %v, want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1GB", "1.5GB", "GB", "1XB", "9999999999TB"} {
		if err := new(Size).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want MemoryLimit
		ok   bool
	}{
		"0.7":        {MemoryLimit{Ratio: 0.7}, true},
		"1.0":        {MemoryLimit{Ratio: 1}, true},
		"1073741824": {MemoryLimit{Bytes: 1 << 30}, true},
		"2GiB":       {MemoryLimit{Bytes: 2 << 30}, true},
		"5 MiB":      {MemoryLimit{Bytes: 5 << 20}, true},
		"10B":        {MemoryLimit{Bytes: 10}, true},
		"1":          {MemoryLimit{Bytes: 1}, true},
		"1.1":        {},
		"-0.1":       {},
		"0":          {},
		"-5":         {},
		"GiB":        {},
		"9999999TiB": {},
		"1e400":      {},
		"":           {},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var got MemoryLimit
			if err := got.UnmarshalText([]byte(text)); (err == nil) != test.ok {
				t.Fatalf("error %v, want ok %t", err, test.ok)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("limit (-want +got):\n%s", diff)
			}
		})
	}
}
