// Package disk puts SQLite databases on bad disks: files that were cut off or changed behind the store's back, disks without
// room, directories that cannot be written. What the store serves is what it was sent, or it says by name what is wrong and
// what to do.
//
// It has no code of its own.
package disk
