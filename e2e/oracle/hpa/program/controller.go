package main

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	autoscaling "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
)

const (
	namespace = "namespace"
	name      = "name"
)

var errRefused = errors.New("refused")

// flags are the flags of kube-controller-manager that steer the controller.
type flags struct {
	SyncPeriod             float64 `json:"syncPeriod"`
	DownscaleStabilization float64 `json:"downscaleStabilization"`
	Tolerance              float64 `json:"tolerance"`
	CPUInitialization      float64 `json:"cpuInitialization"`
	ReadinessDelay         float64 `json:"readinessDelay"`
}

// step is the input of one reconcile. A nil spec, specReplicas or pods means no change.
type step struct {
	Spec           *autoscaling.HorizontalPodAutoscalerSpec `json:"spec"`
	SpecReplicas   *int32                                   `json:"specReplicas"`   // somebody else scales
	StatusReplicas *int32                                   `json:"statusReplicas"` // nil: as many as the spec asks for
	Pods           *[]pod                                   `json:"pods"`
	Readings       map[string]reading                       `json:"readings"`
	FailReads      bool                                     `json:"failReads"`  // of the scale subresource
	FailWrites     bool                                     `json:"failWrites"` // of the scale subresource
}

// scenario is the life of one autoscaler, one step per reconcile.
type scenario struct {
	Flags flags  `json:"flags"`
	Steps []step `json:"steps"`
}

// decision is the controller's decision in one reconcile.
type decision struct {
	Replicas   int32                `json:"replicas"`           // of the scale subresource, after the reconcile
	Reason     string               `json:"reason,omitempty"`   // of a rescale
	Conditions map[string][2]string `json:"conditions"`         // status and reason by type
	Metrics    []*current           `json:"metrics,omitempty"`
}

// current is a metric's value in the status; values are milli-units.
type current struct {
	Utilization  *int32 `json:"utilization,omitempty"`
	AverageValue *int64 `json:"averageValue,omitempty"`
	Value        *int64 `json:"value,omitempty"`
}

// run plays the scenario in the time of a bubble. The first reconcile comes one sync period after the autoscaler
// is created; the inputs of each reconcile change half a period before it.
func (s scenario) run() ([]decision, error) {
	sink := &logSink{}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.New(sink)))
	defer cancel()
	period := seconds(s.Flags.SyncPeriod)
	autoscalers, pods := hpaInformer{newInformer()}, podInformer{newInformer()}
	scales, metrics, writer := &target{}, &readings{}, statusWriter{store: autoscalers.store}
	controller := podautoscaler.NewHorizontalController(
		ctx, noEvents{}, scales, writer, mapper{}, metrics, autoscalers, pods, period,
		seconds(s.Flags.DownscaleStabilization), s.Flags.Tolerance,
		seconds(s.Flags.CPUInitialization), seconds(s.Flags.ReadinessDelay),
	)
	go controller.Run(ctx, 1)
	decisions := make([]decision, 0, len(s.Steps))
	var known []pod
	for i, each := range s.Steps {
		if i == 0 {
			if err := start(autoscalers, each.Spec); err != nil {
				return nil, err
			}
		} else if each.Spec != nil {
			edit(autoscalers, writer, *each.Spec)
		}
		time.Sleep(period / 2)
		metrics.byName, metrics.now = each.Readings, time.Now().Add(period/2)
		if each.SpecReplicas != nil {
			scales.spec = *each.SpecReplicas
		}
		scales.status = scales.spec
		if each.StatusReplicas != nil {
			scales.status = *each.StatusReplicas
		}
		if each.Pods != nil {
			known = *each.Pods
		}
		objects := make([]any, len(known))
		for j, one := range known {
			objects[j] = one.object(namespace, metrics.now)
		}
		if err := pods.store.Replace(objects, ""); err != nil {
			return nil, err
		}
		scales.failReads, scales.failWrites, scales.reads = each.FailReads, each.FailWrites, 0
		*sink = logSink{}
		time.Sleep(period / 2)
		synctest.Wait()
		if scales.reads != 1 && !each.FailWrites {
			return nil, fmt.Errorf("step %d: %d reconciles instead of one", i, scales.reads)
		}
		decisions = append(decisions, decide(writer.read(), scales.spec, sink))
	}
	return decisions, nil
}

// start creates the autoscaler, as the API server would, and tells the controller.
func start(autoscalers hpaInformer, spec *autoscaling.HorizontalPodAutoscalerSpec) error {
	if spec == nil {
		return errors.New("step 0 has no spec")
	}
	made := complete(*spec)
	if err := autoscalers.store.Add(made); err != nil {
		return err
	}
	autoscalers.handler.OnAdd(made, true)
	return nil
}

// edit replaces the spec and keeps the status.
func edit(autoscalers hpaInformer, writer statusWriter, spec autoscaling.HorizontalPodAutoscalerSpec) {
	old, made := writer.read(), complete(spec)
	made.Status = old.Status
	_ = autoscalers.store.Update(made)
	autoscalers.handler.OnUpdate(old, made)
}

// complete returns an autoscaler with the API server's defaults.
func complete(spec autoscaling.HorizontalPodAutoscalerSpec) *autoscaling.HorizontalPodAutoscaler {
	made := &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: *spec.DeepCopy(),
	}
	made.Spec.ScaleTargetRef = autoscaling.CrossVersionObjectReference{APIVersion: "group/v1", Kind: "Target", Name: name}
	defaults.SetDefaults_HorizontalPodAutoscaler(made)
	return made
}

// decide returns the outcome of a reconcile.
func decide(hpa *autoscaling.HorizontalPodAutoscaler, replicas int32, sink *logSink) decision {
	made := decision{
		Replicas: replicas, Reason: sink.reason, Conditions: map[string][2]string{},
	}
	for _, one := range hpa.Status.Conditions {
		made.Conditions[string(one.Type)] = [2]string{string(one.Status), one.Reason}
	}
	for _, one := range hpa.Status.CurrentMetrics {
		made.Metrics = append(made.Metrics, currentValue(one))
	}
	return made
}

// currentValue returns the value of a metric's status, or nil if the status is empty.
func currentValue(status autoscaling.MetricStatus) *current {
	var found autoscaling.MetricValueStatus
	switch {
	case status.Resource != nil:
		found = status.Resource.Current
	case status.ContainerResource != nil:
		found = status.ContainerResource.Current
	case status.Pods != nil:
		found = status.Pods.Current
	case status.Object != nil:
		found = status.Object.Current
	case status.External != nil:
		found = status.External.Current
	default:
		return nil
	}
	made := &current{Utilization: found.AverageUtilization}
	if found.AverageValue != nil {
		milli := found.AverageValue.MilliValue()
		made.AverageValue = &milli
	}
	if found.Value != nil {
		milli := found.Value.MilliValue()
		made.Value = &milli
	}
	return made
}
