// Package spool keeps records on disk until they have been delivered. A [Log] holds
// records up to a limit in bytes. [Marks] is a small table of work in progress that would
// be lost with the process.
//
// Both survive the process, even kill -9. A record is safe once AppendAt has returned: it
// has been written with its checksum and synced, so it also survives a power cut. Marks
// are written but never synced: they survive the process, not the machine.
//
// A directory belongs to one process at a time. The package must not know what is in
// the records.
package spool
