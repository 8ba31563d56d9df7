package record

import (
	"encoding/json"
	"testing"
)

func TestCallersInJSON(t *testing.T) {
	f := Finding{Origin: Origin{Event: 3, Callers: Callers{
		{Function: "example.com/op/controller.(*Reconciler).create.func1", File: "controller/create.go", Line: 7},
		{Function: "main.main", File: "main.go", Line: 1},
	}}}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got Finding
	if err := json.Unmarshal(data, &got); err != nil || got != f || len(got.Callers.List()) != 2 {
		t.Errorf("%s: %+v (%v)", data, got, err)
	}
	if got := f.Callers[0].Package() + " " + f.Callers[1].Package(); got != "example.com/op/controller main" {
		t.Error(got)
	}
	if text := f.Callers[0].String(); text != "controller/create.go:7 (*Reconciler).create.func1" {
		t.Error(text)
	}
	if data, err := json.Marshal(Finding{}); err != nil || string(data) != `{"severity":"","judge":"","title":""}` {
		t.Errorf("without callers: %s (%v)", data, err)
	}
}
