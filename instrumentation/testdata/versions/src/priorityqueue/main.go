// Command priorityqueue does with a queue of controller-runtime what it is told, a line at a time.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func main() {
	q := priorityqueue.New[string]("steps")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("ok") {
		const item = "item"
		switch command := lines.Text(); command {
		case "add":
			q.Add(item)
		case "get":
			q.Get()
		case "done":
			q.Done(item)
		case "shut down":
			q.ShutDown()
		default:
			delay, err := time.ParseDuration(command)
			if err != nil {
				panic(err)
			}
			q.AddAfter(item, delay)
		}
	}
}
