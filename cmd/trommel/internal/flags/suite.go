// Package flags has the flags that several commands have: which suite, how time passes, what is built.
package flags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/plan"
)

// Suite adds the flags that name a suite and its variant.
func Suite(f *pflag.FlagSet, controller, variant *string) {
	Controller(f, controller, "the current directory")
	f.StringVar(variant, "variant", "", "`name` of a variant of the suite")
}

// Controller adds -c, which names the suite for all commands alike.
func Controller(f *pflag.FlagSet, controller *string, byDefault string) {
	f.StringVarP(controller, "controller", "c", "", "the controller's `directory`, with its trommel.yaml, or the "+
		"suite file (default: "+byDefault+")")
}

// EitherSuite adds -c, and --suite for those who know it by that name. [NamedSuite] takes both.
func EitherSuite(f *pflag.FlagSet, controller, suite *string, byDefault string) {
	Controller(f, controller, byDefault)
	f.StringVar(suite, "suite", "", "suite `file`; the same as -c FILE")
}

// NamedSuite is the file of the suite that -c or --suite names; empty: neither does.
func NamedSuite(controller, suite string) (string, error) {
	switch {
	case controller != "" && suite != "":
		return "", errors.New("-c (--controller) and --suite both name the suite; give one of them")
	case controller == "":
		return suite, nil
	}
	info, err := os.Stat(controller)
	if err != nil {
		return "", fmt.Errorf("-c (--controller): %s: no such file or directory; want the controller's directory "+
			"or its suite", controller)
	}
	if !info.IsDir() {
		return controller, nil
	}
	file := filepath.Join(controller, plan.SuiteFile)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("-c (--controller): there is no %s in %s; `trommel init` writes one", plan.SuiteFile,
			controller)
	}
	return file, nil
}

// SuiteFile is the file of the suite that -c names; empty: the one in the current directory.
func SuiteFile(controller string) (string, error) {
	if controller == "" {
		controller = "."
	}
	return NamedSuite(controller, "")
}
