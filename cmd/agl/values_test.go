package main

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "10m": 10 * time.Minute, "0.5s": time.Second / 2,
	} {
		var s span
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, %v, want %v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "0d", "-1d", "1dd", "1d-1h", "1h1d", "1e300d", "NaNd", "seven"} {
		if err := new(span).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1": 1, "20GB": 20e9, "20 GB": 20e9, "512MiB": 512 << 20, "1KiB": 1024, "1kB": 1000, "3TB": 3e12, "5B": 5,
	} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil || int64(s) != want {
			t.Errorf("%s is %d, %v, want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1GB", "1.5GB", "GB", "1XB", "9999999999TB"} {
		if err := new(size).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 20e9: "20.0 GB"} {
		if got := formatSize(bytes); got != want {
			t.Errorf("%d is shown as %s, want %s", bytes, got, want)
		}
	}
}
