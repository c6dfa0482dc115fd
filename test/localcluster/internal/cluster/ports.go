// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports lie below those that the kernel gives to outgoing connections (32768 and
// up): from there it could take one of ours while a component is being restarted.
const (
	firstPort = 20000
	lastPort  = 32000
)

// chosen are the ports that the clusters of this process have, bound by now or not.
var chosen = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// choosePorts finds a free port per name. It starts anywhere, so that clusters of two processes
// that come up at the same time hardly race for the same ones; those of one process never do.
func choosePorts(names []string) (map[string]int, error) {
	chosen.Lock()
	defer chosen.Unlock()
	ports := map[string]int{}
	next := firstPort + rand.IntN(lastPort-firstPort)
	for _, name := range names {
		port, err := freePort(next)
		if err != nil {
			return nil, err
		}
		ports[name] = port
		chosen.ports[port] = true
		next = port + 1
	}
	return ports, nil
}

func freePort(from int) (int, error) {
	for i := range lastPort - firstPort {
		port := firstPort + (from-firstPort+i)%(lastPort-firstPort)
		if chosen.ports[port] {
			continue
		}
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
}

// port returns a chosen port; asking for one that no component lists is a bug.
func (c *Cluster) port(component, purpose string) int {
	port, ok := c.state.Ports[component+"/"+purpose]
	if !ok {
		panic("component " + component + " lists no port " + purpose)
	}
	return port
}

func (c *Cluster) address(component, purpose string) string {
	return fmt.Sprintf("127.0.0.1:%d", c.port(component, purpose))
}
