// Package output is how commands show things: their streams, the progress of what takes long, and lists.
package output

import "io"

// Streams are the output streams of a command: results go to Out, progress to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}
