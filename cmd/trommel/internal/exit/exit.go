// Package exit has the exit codes of trommel, and errors that carry one to main.
package exit

import "fmt"

// Exit codes. They are documented and must not change.
const (
	Pass         = 0
	Bug          = 1
	Usage        = 2 // bad plan or usage
	Inconclusive = 3
	CannotRun    = 4
	NoGroup      = 5 // of cycle
	Refused      = 6 // of worker
)

// Error carries an exit code to main. With a nil Err, main prints no message.
type Error struct {
	Code int
	Err  error
}

// With returns an error that ends the program with an exit code. With a nil error, main prints no message.
func With(code int, err error) error { return &Error{Code: code, Err: err} }

// IfUnprinted makes an error of the output one that ends the program. It returns nil if there is none.
func IfUnprinted(err error) error {
	if err != nil {
		return With(CannotRun, err)
	}
	return nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }
