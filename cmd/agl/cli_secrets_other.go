//go:build !linux

package main

// hideSecrets does nothing where other processes cannot read an environment from the system.
func hideSecrets() {}
