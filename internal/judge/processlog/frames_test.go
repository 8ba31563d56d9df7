package processlog

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestCallersInAStack(t *testing.T) {
	stack := strings.Split(`panic: runtime error: invalid memory address or nil pointer dereference [recovered]
goroutine 84 [running]:
k8s.io/apimachinery/pkg/util/runtime.logPanic({0x1, 0x2}, {0x3, 0x4})
	k8s.io/apimachinery@v0.36.3/pkg/util/runtime/runtime.go:132 +0xbc
panic({0x153, 0x2cf})
	runtime/panic.go:770 +0x132
example.com/op/api/v1.(*Thing).DeepCopyInto(...)
	example.com/op/api/v1/zz_generated.deepcopy.go:30
example.com/op/internal/controller.(*Reconciler).size(0xc0001, {0x1, 0x5})
	example.com/op/internal/controller/size.go:88 +0x1f
example.com/op/internal/controller.(*Reconciler).Reconcile.func1()
	example.com/op/internal/controller/thing.go:41 +0x25
example.com/op@v1.0.0/other.F()
	example.com/op@v1.0.0/other/f.go:1 +0x25
sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller).Reconcile(0x1)
	sigs.k8s.io/controller-runtime@v0.24.0/pkg/internal/controller/controller.go:119 +0x1`, "\n")
	want := record.Callers{
		{Function: "example.com/op/internal/controller.(*Reconciler).size",
			File: "internal/controller/size.go", Line: 88},
		{Function: "example.com/op/internal/controller.(*Reconciler).Reconcile.func1",
			File: "internal/controller/thing.go", Line: 41},
	}
	if got := callersIn("example.com/op", stack); got != want {
		t.Errorf("%+v", got.List())
	}
	for _, module := range []string{"", "example.com/o", "example.com/other"} {
		if got := callersIn(module, stack); got.Known() {
			t.Errorf("%q: %+v", module, got.List())
		}
	}
}
