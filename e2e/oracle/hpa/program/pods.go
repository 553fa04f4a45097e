package main

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// labelKey and labelValue select every pod of a case.
const (
	labelKey   = "app"
	labelValue = "case"
)

// container is a container of a pod. Sidecar makes it a restartable init container.
type container struct {
	Name     string           `json:"name"`
	Sidecar  bool             `json:"sidecar"`
	Requests map[string]int64 `json:"requests"` // milli-units by resource
}

// pod is a pod of the scale target. Its ages are seconds before the moment of the decision.
type pod struct {
	Name       string           `json:"name"`
	Phase      string           `json:"phase"`
	Deleting   bool             `json:"deleting"`
	Ready      string           `json:"ready"` // status of the condition Ready; empty if the pod has no such condition
	ReadyAge   float64          `json:"readyAge"`
	StartAge   *float64         `json:"startAge"` // nil if the kubelet has not started the pod
	Containers []container      `json:"containers"`
	Requests   map[string]int64 `json:"requests"` // of the whole pod: spec.resources
}

// sample is a pod's value of a metric: milli-units, age in seconds and window in seconds.
type sample struct {
	Value  int64   `json:"value"`
	Age    float64 `json:"age"`
	Window float64 `json:"window"`
}

// seconds returns a duration of some seconds.
func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}

// object returns the pod as an object of the API at the moment now.
func (p pod) object(namespace string, now time.Time) *v1.Pod {
	made := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: namespace, Labels: map[string]string{labelKey: labelValue},
		},
		Status: v1.PodStatus{Phase: v1.PodPhase(p.Phase)},
	}
	if p.Deleting {
		made.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if p.StartAge != nil {
		made.Status.StartTime = &metav1.Time{Time: now.Add(-seconds(*p.StartAge))}
	}
	if p.Ready != "" {
		made.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionStatus(p.Ready),
			LastTransitionTime: metav1.Time{Time: now.Add(-seconds(p.ReadyAge))},
		}}
	}
	if len(p.Requests) > 0 {
		made.Spec.Resources = requirements(p.Requests)
	}
	for _, each := range p.Containers {
		one := v1.Container{Name: each.Name, Resources: *requirements(each.Requests)}
		if each.Sidecar {
			always := v1.ContainerRestartPolicyAlways
			one.RestartPolicy = &always
			made.Spec.InitContainers = append(made.Spec.InitContainers, one)
		} else {
			made.Spec.Containers = append(made.Spec.Containers, one)
		}
	}
	return made
}

// requirements returns requests of milli-units.
func requirements(requests map[string]int64) *v1.ResourceRequirements {
	made := &v1.ResourceRequirements{Requests: v1.ResourceList{}}
	for name, milli := range requests {
		made.Requests[v1.ResourceName(name)] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	return made
}

// podMetrics returns samples at the moment now. The calculator changes this map, so each call needs a fresh one.
func podMetrics(samples map[string]sample, now time.Time) metricsclient.PodMetricsInfo {
	made := make(metricsclient.PodMetricsInfo, len(samples))
	for name, one := range samples {
		made[name] = metricsclient.PodMetric{
			Timestamp: now.Add(-seconds(one.Age)), Window: seconds(one.Window), Value: one.Value,
		}
	}
	return made
}
