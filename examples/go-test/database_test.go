// Package gotest shows plans beside other Go tests. It is a module of its own, as an operator's repository is, with
// Trommel as a dependency of its tests.
package gotest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/trommeltest"
)

const operator = "database-operator"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // otherwise controller-runtime's client complains
	trommeltest.Main(m)
}

func database() *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: v1alpha1.DatabaseSpec{
			Replicas: 2, Storage: resource.MustParse("1Gi"), Image: "registry.example/database:1.0",
		},
	}
}

// connect makes controller-runtime's client.
func connect(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// ready waits, as long as the workload may take, until the Database is ready for its newest spec.
func ready(ctx context.Context, c client.Client) error {
	db := database()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil {
			return false, err
		}
		return db.Status.Phase == "Ready" && db.Status.ObservedGeneration == db.Generation, nil
	})
	if err != nil {
		return fmt.Errorf("the Database is in phase %q: %w", db.Status.Phase, err)
	}
	return nil
}

// A crash between the Secret and the Service leaves a Database without a Service: a known bug. As soon as it is mended,
// this test fails.
func TestCrashWhileCreating(t *testing.T) {
	suite := trommeltest.Suite(t, "../database-operator")
	r := suite.RunFile(t, "../database-operator/plans/interrupted-create.yaml",
		trommeltest.Expect(trommeltest.Bug, "every-database-has-a-service"))
	if len(r.History("service/default/db")) > 0 {
		t.Error("there is a Service")
	}
}

// The operator recovers from a crash right after it has made the StatefulSet. The plan and its workload are Go.
func TestCrashAfterStatefulSet(t *testing.T) {
	suite := trommeltest.Suite(t, "../database-operator")
	trommeltest.WorkloadWith(suite, "create in Go", connect, func(ctx context.Context, c client.Client) error {
		if err := c.Create(ctx, database()); err != nil {
			return err
		}
		return ready(ctx, c)
	})
	r := suite.Run(t, build.RestartAfterWrite("crash-after-statefulset", operator,
		build.Created("statefulset/default/db")).Workload("create in Go"))

	if err := onePassword(r.History("secret/default/db-credentials")); err != nil {
		t.Error(err)
	}
}

// The operator without its known bugs withstands two orders of events that no plan describes.
func TestOrders(t *testing.T) {
	suite := trommeltest.Suite(t, "../database-operator", trommeltest.Variant("fixed"))
	suite.Orders(t, "scale-down-up", 2)
}

// onePassword checks that a Secret was created once, and never changed.
func onePassword(states []record.HistoryEntry) error {
	if len(states) != 1 || states[0].Event != record.Created {
		return errors.New("the credentials were made more than once, or changed")
	}
	return nil
}
