package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/plan"
)

// suiteFlags adds the flags that name a suite and its variant.
func suiteFlags(f *pflag.FlagSet, controller, variant *string) {
	controllerFlag(f, controller, "the current directory")
	f.StringVar(variant, "variant", "", "`name` of a variant of the suite")
}

// controllerFlag adds -c, which names the suite for all commands alike.
func controllerFlag(f *pflag.FlagSet, controller *string, byDefault string) {
	f.StringVarP(controller, "controller", "c", "", "the controller's `directory`, with its trommel.yaml, or the "+
		"suite file (default: "+byDefault+")")
}

// eitherSuiteFlag adds -c, and --suite for those who know it by that name. [namedSuite] takes both.
func eitherSuiteFlag(f *pflag.FlagSet, controller, suite *string, byDefault string) {
	controllerFlag(f, controller, byDefault)
	f.StringVar(suite, "suite", "", "suite `file`; the same as -c FILE")
}

// namedSuite is the file of the suite that -c or --suite names; empty: neither does.
func namedSuite(controller, suite string) (string, error) {
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

// suiteFileIn is the file of the suite that -c names; empty: the one in the current directory.
func suiteFileIn(controller string) (string, error) {
	if controller == "" {
		controller = "."
	}
	return namedSuite(controller, "")
}

// moved says that a plan's own path to its suite leads nowhere, and which suite [plan.FindSuite] has found instead;
// empty: it leads there.
func moved(p *plan.Plan, suiteFile string) string {
	if p.Suite == "" {
		return ""
	}
	if _, err := os.Stat(plan.Beside(p.File, p.Suite)); err == nil {
		return ""
	}
	return fmt.Sprintf("%s: its suite %s does not exist; %s is used", p.File, p.Suite, suiteFile)
}
