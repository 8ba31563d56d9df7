package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/record"
)

// A write that fails because a webhook is unreachable is retried while the plan is the cause, and never counts as a
// bug.
func TestOutage(t *testing.T) {
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "a.example.com": failed to call webhook: ` +
		`Post "https://a": EOF`))
	for _, tt := range []struct {
		name     string
		outages  []Outage // one for each failed attempt; then the webhook is back
		err      error
		judge    string // empty: no finding
		attempts int
	}{
		{name: "comes back", outages: []Outage{{Reason: "killed"}, {Reason: "restarted"}, {Over: true}}, err: down,
			attempts: 4},
		{name: "never comes back", outages: []Outage{{Reason: "killed"}, {Reason: "killed", Final: true}}, err: down,
			judge: record.JudgeWebhook, attempts: 2},
		{name: "not caused by the plan", outages: []Outage{{}}, err: down, judge: record.JudgeWorkload, attempts: 1},
		{name: "the webhook denies the request", outages: []Outage{{Reason: "killed"}},
			err: errors.New("admission webhook denied the request"), judge: record.JudgeWorkload, attempts: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			attempts := 0
			r := &runner{Config: Config{Progress: func(string) {},
				Outage: func(context.Context, time.Time, error) Outage { return tt.outages[attempts-1] }}}
			failed, err := r.run(t.Context(),
				[]step{{title: "step 1", timeout: time.Second, do: func(context.Context) error {
					if attempts++; attempts > len(tt.outages) {
						return nil
					}
					return tt.err
				}}})
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			if failed != nil {
				found = judge.Step(failed).Judge
			}
			if found != tt.judge || attempts != tt.attempts {
				t.Errorf("failed %+v after %d attempts; want judge %q after %d", failed, attempts, tt.judge,
					tt.attempts)
			}
		})
	}
}

// A write is not retried if the webhook will never come back.
func TestOutageIsFinal(t *testing.T) {
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "a.example.com": failed to call webhook: ` +
		`Post "https://a": connection refused`))
	if !objects.WebhookFailed(down) {
		t.Error("not recognized as a failed webhook")
	}
	r := &runner{Config: Config{Outage: func(context.Context, time.Time, error) Outage {
		return Outage{Reason: "killed", Final: true}
	}}}
	attempts := 0
	err := r.retry(t.Context(), func(context.Context) error { attempts++; return down })
	if !errors.Is(err, down) || attempts != 1 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}
