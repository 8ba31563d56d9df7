package run_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/trommel-dev/trommel/internal/report/display"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A program that runs a plan, shows how the run goes, and prints the result.
func ExampleOpen() {
	ctx := context.Background()
	suite, err := plan.LoadSuite("trommel.yaml")
	if err != nil {
		log.Fatal(err)
	}
	p, err := plan.LoadWith("plans/stale-deletion.yaml", suite)
	if err != nil {
		log.Fatal(err)
	}
	console := display.NewConsole(os.Stderr, display.Options{})
	defer console.Close()
	session, err := run.Open(ctx, suite, run.Options{Progress: console})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := session.Close(ctx); err != nil {
			log.Print(err)
		}
	}()
	meta, err := session.Run(ctx, p, "trommel-runs/stale-deletion")
	if err != nil {
		log.Fatal(err)
	}
	if meta.Verdict == record.Bug {
		r, err := record.Open("trommel-runs/stale-deletion")
		if err != nil {
			log.Fatal(err)
		}
		for _, f := range r.Findings {
			fmt.Println(f.Judge, f.Title)
		}
	}
}
