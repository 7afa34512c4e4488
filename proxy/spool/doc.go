// Package spool keeps records on disk until they have been passed on: a [Log]
// of records, bounded in bytes, and [Marks], a small table of what is under way
// and would be lost with the process. It knows nothing of what the records say.
//
// Both survive the process, kill -9 included. A record counts as kept once
// Append has returned: it has been written with its checksum and synced, so it
// survives a power cut, too, as far as the disk keeps its promises. Marks are
// written but never synced: they outlive the process, not the machine.
//
// A directory belongs to one process at a time.
package spool
