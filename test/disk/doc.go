// Package disk puts SQLite databases on bad disks: files that were cut off or changed behind the store's back, disks without
// room, directories that cannot be written. The store must serve the data that it was sent, or return an error that names the
// file and says what to do.
//
// It has no code of its own.
package disk
