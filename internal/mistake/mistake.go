// Package mistake has the error for what a user has to correct.
package mistake

// Error is a mistake in a plan or a suite.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
