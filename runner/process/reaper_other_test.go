//go:build !linux

package process_test

const reaperScript = "AGL_TEST_REAPER_SCRIPT"

func underReaper() error { return nil }
