package main

import (
	"errors"
	"os/exec"
	"strconv"
)

func exitCode(err error) string {
	if err == nil {
		return "0"
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}
