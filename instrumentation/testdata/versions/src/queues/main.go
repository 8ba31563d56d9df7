// Command queues does with a work queue what it is told, a line at a time.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func main() {
	q := workqueue.NewNamedDelayingQueue("steps")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("ok") {
		var item interface{} = "item"
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
